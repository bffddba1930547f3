/* Requests of the socket with DATA: code and files from clients, files to clients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/share.h"
#include "daemon/download.h"
#include "daemon/file_receiver.h"
#include "daemon/operation.h"
#include "daemon/socket_request.h"
#include "daemon/upload.h"
#include "session/caller.h"
#include "session/manager.h"

/* ---- code ---- */

struct code_upload {
        struct upload upload;
        char *bytes;
        size_t size;
        struct share_table *shares; /* the request may have ended when it is given back */
        struct share_claim claim;
        char owner[SHARE_NAME_MAX + 1];
};

enum { CODE_SMALL = 8 << 10 }; /* is not charged */

static int execute_code(struct caller *caller, json_t *json, const struct code_upload *code, struct err *err) {
        struct run_request request;
        if (run_request_read_json(json, &request, err) < 0)
                return -1;
        request.options = json;
        if (code) {
                request.code = code->bytes ? code->bytes : "";
                request.code_size = code->size;
        }
        return operation_execute(caller, &request, err);
}

/* As bodies of HTTP: a client may have many connections with code that never ends. */
static int charge_code(struct code_upload *code, size_t size, struct err *err) {
        struct share_claim more = code->claim;
        more.amount = size - code->claim.amount;
        if (size <= CODE_SMALL)
                return 0;
        if (share_take(code->shares, SHARE_BODIES, &more, err) < 0)
                return -1;
        code->claim.amount = size;
        return 0;
}

static int on_code_piece(struct upload *upload, const char *bytes, size_t size, struct err *err) {
        struct code_upload *code = (struct code_upload *) upload;
        if (size > RUN_CODE_MAX - code->size)
                return err_set(err, ERR_LIMIT, "more than %d bytes", RUN_CODE_MAX);
        if (charge_code(code, code->size + size, err) < 0)
                return -1;
        char *grown = realloc(code->bytes, code->size + size + 1);
        if (!grown)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        memcpy(grown + code->size, bytes, size);
        code->bytes = grown;
        code->size += size;
        return 0;
}

static void on_code_end(struct upload *upload) {
        struct err err;
        if (execute_code(upload->caller, upload->json, (struct code_upload *) upload, &err) < 0)
                caller_refuse(upload->caller, &err);
}

static void on_code_abandoned(struct upload *upload) {
        struct code_upload *code = (struct code_upload *) upload;
        if (code->claim.amount)
                share_give(code->shares, SHARE_BODIES, &code->claim);
        free(code->bytes);
}

int socket_request_execute(struct caller *caller, json_t *json, struct err *err) {
        if (!json_is_true(json_object_get(json, "code_follows")))
                return execute_code(caller, json, NULL, err);
        caller_begin(caller, "execute", json_string_value(json_object_get(json, "session")));
        struct code_upload *code = calloc(1, sizeof(*code));
        if (!code)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        code->upload = (struct upload) { .caller = caller,
                                         .piece = on_code_piece,
                                         .finish = on_code_end,
                                         .abandon = on_code_abandoned,
                                         .json = json_incref(json) };
        code->shares = &caller->manager->shares;
        (void) snprintf(code->owner, sizeof(code->owner), "%s", caller->owner);
        code->claim.key = code->owner;
        return upload_begin(&code->upload, err);
}

/* ---- a file that comes ---- */

struct file_upload {
        struct upload upload;
        struct file_receiver receiver;
};

static int on_file_piece(struct upload *upload, const char *bytes, size_t size, struct err *err) {
        return file_receiver_piece(&((struct file_upload *) upload)->receiver, bytes, size, err);
}

static void on_file_end(struct upload *upload) {
        struct file_receiver *receiver = &((struct file_upload *) upload)->receiver;
        struct caller *caller = upload->caller;
        bool is_durable = json_is_true(json_object_get(upload->json, "sync"));
        struct err err;
        int code = is_durable ? file_receiver_finish_durably(receiver, caller, &err)
                              : file_receiver_finish(receiver, &err);
        if (code < 0)
                caller_refuse(caller, &err);
        else if (!is_durable)
                caller_answer(caller, json_pack("{s:I, s:b}", "size", (json_int_t) receiver->size, "created",
                                                (int) !receiver->replaced));
}

static void on_file_abandoned(struct upload *upload) {
        file_receiver_abandon(&((struct file_upload *) upload)->receiver);
}

int socket_request_write_file(struct caller *caller, json_t *json, struct err *err) {
        const struct file_request request = socket_request_file(json);
        struct file_upload *file = calloc(1, sizeof(*file));
        if (!file)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (file_receiver_begin(caller, &request, 0, &file->receiver, err) < 0) {
                free(file);
                return -1;
        }
        file->upload = (struct upload) { .caller = caller,
                                         .piece = on_file_piece,
                                         .finish = on_file_end,
                                         .abandon = on_file_abandoned,
                                         .json = json_incref(json) };
        return upload_begin(&file->upload, err);
}

/* ---- a file that goes ---- */

int socket_request_read_file(struct caller *caller, json_t *json, struct err *err) {
        const struct file_request request = socket_request_file(json);
        json_int_t offset = json_integer_value(json_object_get(json, "offset"));
        json_t *wanted = json_object_get(json, "size");
        struct open_file file;
        if (operation_file_open(caller, &request, &file, err) < 0)
                return -1;
        uint64_t size = (uint64_t) file.status.st_size;
        int code = 0;
        if (!S_ISREG(file.status.st_mode))
                code = err_set(err, ERR_USAGE, "%.200s is a directory", file.path);
        else if (offset < 0 || (wanted && json_integer_value(wanted) < 0) || (uint64_t) offset > size)
                code = err_set(err, ERR_USAGE, "offset and size must lie within the file, which has %llu bytes",
                               (unsigned long long) size);
        if (code < 0) {
                fd_close(&file.fd);
                return -1;
        }
        uint64_t left = size - (uint64_t) offset;
        if (wanted && (uint64_t) json_integer_value(wanted) < left)
                left = (uint64_t) json_integer_value(wanted);
        return download_begin(caller, file.fd, (uint64_t) offset, left, err);
}
