#include "api/receiving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/file.h"
#include "api/remote_receiver.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "base/memory.h"
#include "daemon/file_receiver.h"
#include "daemon/operation.h"
#include "daemon/remote_ask.h"
#include "http/multipart.h"
#include "http/text.h"
#include "session/manager.h"
#include "session/session.h"
#include "store/workspace.h"

enum {
        FILES_MAX = 32,       /* of one request: each holds two descriptors */
        PATH_ROOM = 4096,
};

struct receiving {
        struct api_request *api_request;
        char session[API_PARAMETER_SIZE_MAX +
                     1]; /* its name; after the first file its id: another sandbox could get the name */
        bool creates;
        char directory[PATH_ROOM]; /* where parts go */
        struct multipart *multipart; /* NULL: the body is the file */
        bool in_field; /* the part is a field, not a file */
        char field[PATH_ROOM];
        size_t field_size;
        bool is_crowded; /* there is no room for one more file */
        struct file_receiver files[FILES_MAX];
        size_t n;

        /* of a sandbox that another Glovebox has: instead of the files */
        bool is_remote, is_held, is_ended; /* the body waits; it is over */
        struct remote_ask *ask; /* makes the sandbox there */
        struct remote_receiver *remote_files[FILES_MAX];
        size_t n_done;
};

static const struct http_events body_events, held_events;

static struct share_claim receiving_claim(const struct receiving *receiving, size_t n) {
        return (struct share_claim) { .key = receiving->api_request->visitor.owner, .amount = n };
}

static void receiving_free(struct receiving *receiving) {
        remote_ask_drop(receiving->ask);
        for (size_t i = 0; i < receiving->n; i++) {
                file_receiver_abandon(&receiving->files[i]);
                remote_receiver_drop(receiving->remote_files[i]);
        }
        const struct share_claim all = receiving_claim(receiving, receiving->n);
        share_give(&receiving->api_request->service->manager->shares, SHARE_FILES, &all);
        multipart_close(receiving->multipart);
        free(receiving);
}

static void receiving_refuse(struct receiving *receiving, const struct err *err) {
        struct api_request *api_request = receiving->api_request;
        bool is_crowded = receiving->is_crowded;
        receiving_free(receiving);
        if (is_crowded)
                api_request_problem(api_request, 429, "limit", err->message, NULL);
        else if (err->code == ERR_LIMIT)
                api_request_problem(api_request, 413, "too_large", err->message, NULL);
        else
                api_request_refuse(api_request, err);
}

static void receiving_on_gone(void *context) {
        struct receiving *receiving = context;
        struct api_request *api_request = receiving->api_request;
        receiving_free(receiving);
        api_request_free(api_request);
}

/* ---- one file, there ---- */

static void answer_remote(struct receiving *receiving) {
        struct api_request *api_request = receiving->api_request;
        json_t *list = json_array();
        bool is_created = false;
        for (size_t i = 0; i < receiving->n; i++) {
                const struct remote_receiver *receiver = receiving->remote_files[i];
                is_created |= remote_receiver_is_created(receiver);
                json_array_append_new(list, json_pack("{s:o, s:I}", "path",
                                                      json_sprintf("/workspace/%s", remote_receiver_path(receiver)),
                                                      "size", (json_int_t) remote_receiver_size(receiver)));
        }
        json_t *answer =
                receiving->multipart ? json_pack("{s:O}", "files", list) : json_incref(json_array_get(list, 0));
        json_decref(list);
        receiving_free(receiving);
        api_request_answer(api_request, is_created ? 201 : 200, answer);
}

static void on_remote_room(void *context) {
        struct receiving *receiving = context;
        if (!receiving->is_held || receiving->is_ended)
                return;
        receiving->is_held = false;
        http_attend(receiving->api_request->request, &body_events, receiving);
}

static void on_remote_done(void *context, const struct err *err) {
        struct receiving *receiving = context;
        receiving->n_done++;
        if (err)
                receiving_refuse(receiving, err);
        else if (receiving->is_ended && receiving->n_done == receiving->n)
                answer_remote(receiving);
}

static const struct remote_receiver_events remote_events = { on_remote_room, on_remote_done };

static int add_remote_file(struct receiving *receiving, const char *relative, struct err *err) {
        struct api_request *api_request = receiving->api_request;
        struct session *session = session_find(api_request->caller.manager, "", receiving->session);
        if (!session || !session->is_remote)
                return err_set(err, ERR_GONE, "the sandbox was removed or moved while %.200s arrived", relative);
        if (remote_receiver_begin(&api_request->caller, session, relative, api_request->service->settings->upload_max,
                                  &remote_events, receiving, &receiving->remote_files[receiving->n], err) < 0)
                return -1;
        receiving->n++;
        return 0;
}

/* The remote, or the connection to it, is slower than the client: the client waits. */
static int add_remote_bytes(struct receiving *receiving, const char *bytes, size_t size, struct err *err) {
        int code = remote_receiver_piece(receiving->remote_files[receiving->n - 1], bytes, size, err);
        if (code > 0 && !receiving->is_held) {
                receiving->is_held = true;
                http_attend(receiving->api_request->request, &held_events, receiving);
        }
        return code < 0 ? -1 : 0;
}

/* ---- one file ---- */

static int add_file(struct receiving *receiving, const char *relative, struct err *err) {
        struct api_request *api_request = receiving->api_request;
        struct file_receiver *receiver = &receiving->files[receiving->n];
        const struct file_request request = { .session = receiving->session,
                                              .path = relative,
                                              .creates = receiving->creates };
        if (receiving->n == FILES_MAX)
                return err_set(err, ERR_LIMIT, "at most %d files can be sent at once", FILES_MAX);
        const struct share_claim one = receiving_claim(receiving, 1);
        struct share_table *shares = &api_request->service->manager->shares;
        if (share_take(shares, SHARE_FILES, &one, err) < 0) {
                receiving->is_crowded = true;
                return -1;
        }
        if (receiving->is_remote) {
                if (file_check_name(relative, err) == 0 && add_remote_file(receiving, relative, err) == 0)
                        return 0;
                share_give(shares, SHARE_FILES, &one);
                return -1;
        }
        /* The quota of sandboxes is checked when it is made: others may have been made meanwhile. */
        if (file_check_name(relative, err) < 0 ||
            (receiving->creates && !sandbox_has_room(api_request, receiving->session, err)) ||
            file_receiver_begin(&api_request->caller, &request, api_request->service->settings->upload_max, receiver,
                                err) < 0) {
                receiving->is_crowded = err->code == ERR_LIMIT; /* not the size of the file */
                share_give(shares, SHARE_FILES, &one);
                return -1;
        }
        (void) snprintf(receiving->session, sizeof(receiving->session), "%s", receiver->session_id);
        receiving->creates = false;
        receiving->n++;
        return 0;
}

static int add_bytes(struct receiving *receiving, const char *bytes, size_t size, struct err *err) {
        if (receiving->is_remote)
                return add_remote_bytes(receiving, bytes, size, err);
        return file_receiver_piece(&receiving->files[receiving->n - 1], bytes, size, err);
}

/* ---- a form ---- */

static int on_part(void *context, const struct multipart_part *part, struct err *err) {
        struct receiving *receiving = context;
        char joined[PATH_ROOM + MULTIPART_NAME_MAX + 2], relative[4096];
        receiving->in_field = !part->file_name;
        receiving->field_size = 0;
        if (!part->file_name)
                return strcmp(part->name, "path") == 0
                               ? 0
                               : err_set(err, ERR_USAGE,
                                         "the part \"%.100s\" has no file name; besides files there is "
                                         "only \"path\", the directory that they go to",
                                         part->name);
        if (!*part->file_name || *part->file_name == '/')
                return err_set(err, ERR_USAGE, "a file name in the form is empty, or begins with a slash");
        (void) snprintf(joined, sizeof(joined), "%s/%s", receiving->directory, part->file_name);
        return workspace_check_path(joined, relative, err) < 0 ? -1 : add_file(receiving, relative, err);
}

static int receiving_on_data(void *context, const char *bytes, size_t size, struct err *err) {
        struct receiving *receiving = context;
        if (!receiving->in_field)
                return add_bytes(receiving, bytes, size, err);
        if (size >= sizeof(receiving->field) - receiving->field_size || memchr(bytes, '\0', size))
                return err_set(err, ERR_USAGE, "the field \"path\" is too long, or holds a NUL");
        memcpy(receiving->field + receiving->field_size, bytes, size);
        receiving->field_size += size;
        return 0;
}

static int on_part_end(void *context, struct err *err) {
        struct receiving *receiving = context;
        if (!receiving->in_field)
                return receiving->is_remote ? remote_receiver_finish(receiving->remote_files[receiving->n - 1], err)
                                            : 0;
        receiving->field[receiving->field_size] = '\0';
        return workspace_check_path(receiving->field, receiving->directory, err);
}

static const struct multipart_events form_events = { on_part, receiving_on_data, on_part_end };

/* ---- the body ---- */

static void on_body(void *context, const char *bytes, size_t size) {
        struct receiving *receiving = context;
        struct err err;
        int code = receiving->multipart ? multipart_feed(receiving->multipart, bytes, size, &err)
                                        : add_bytes(receiving, bytes, size, &err);
        if (code < 0)
                receiving_refuse(receiving, &err);
}

/* Gives all files their names. After a failure the rest is dropped; files before it stay. */
static json_t *finish_files(struct receiving *receiving, bool *ret_created, struct err *err) {
        json_t *list = json_array();
        for (size_t i = 0; i < receiving->n; i++) {
                struct file_receiver *receiver = &receiving->files[i];
                char path[4200];
                if (file_receiver_finish(receiver, err) < 0) {
                        json_decref(list);
                        return NULL;
                }
                *ret_created |= !receiver->replaced;
                (void) snprintf(path, sizeof(path), "/workspace/%s", receiver->path);
                json_array_append_new(list, json_pack("{s:s, s:I}", "path", path, "size", (json_int_t) receiver->size));
        }
        return list;
}

/* The file of a form was finished with its part. */
static void end_remote(struct receiving *receiving) {
        struct err err = { 0 };
        int code = receiving->multipart ? multipart_finish(receiving->multipart, &err)
                                        : remote_receiver_finish(receiving->remote_files[0], &err);
        if (code == 0 && receiving->n == 0)
                code = err_set(&err, ERR_USAGE, "there is no file in the form");
        receiving->is_ended = true;
        http_attend(receiving->api_request->request, &held_events, receiving);
        if (code < 0)
                receiving_refuse(receiving, &err);
        else if (receiving->n_done == receiving->n)
                answer_remote(receiving);
}

static void on_body_end(void *context) {
        struct receiving *receiving = context;
        if (receiving->is_remote) {
                end_remote(receiving);
                return;
        }
        struct api_request *api_request = receiving->api_request;
        struct err err;
        bool is_created = false;
        json_t *list = NULL;
        if (!receiving->multipart || multipart_finish(receiving->multipart, &err) == 0) {
                if (receiving->n == 0)
                        (void) err_set(&err, ERR_USAGE, "there is no file in the form");
                else
                        list = finish_files(receiving, &is_created, &err);
        }
        if (!list) {
                receiving_refuse(receiving, &err);
                return;
        }
        json_t *answer =
                receiving->multipart ? json_pack("{s:O}", "files", list) : json_incref(json_array_get(list, 0));
        json_decref(list);
        receiving_free(receiving);
        api_request_answer(api_request, is_created ? 201 : 200, answer);
}

static const struct http_events held_events = { .on_gone = receiving_on_gone };
static const struct http_events body_events = { .on_body = on_body,
                                                .on_body_end = on_body_end,
                                                .on_gone = receiving_on_gone };

bool receiving_is_form(const struct api_request *api_request) {
        const char *type = http_header(api_request->request, "Content-Type");
        return type && http_same_sized(type, strcspn(type, "; \t"), "multipart/form-data");
}

/* A sandbox is made for it only when a file comes, after the checks of its head. */
static int receiving_prepare(struct receiving *receiving, const struct file_request *request, struct err *err) {
        const struct api_request *api_request = receiving->api_request;
        int64_t length = http_content_length(api_request->request);
        (void) snprintf(receiving->session, sizeof(receiving->session), "%s", request->session);
        (void) snprintf(receiving->directory, sizeof(receiving->directory), "%s", request->path);
        receiving->creates = request->creates;
        if (receiving_is_form(api_request))
                return multipart_open(http_header(api_request->request, "Content-Type"), &form_events, receiving,
                                      &receiving->multipart, err);
        if (add_file(receiving, request->path, err) < 0)
                return -1;
        return length > 0 && !receiving->is_remote
                       ? file_receiver_check_size(&receiving->files[0], (uint64_t) length, err)
                       : 0;
}

/* NULL: the request is answered. */
static struct receiving *receiving_new(struct api_request *api_request) {
        struct receiving *receiving = calloc(1, sizeof(*receiving));
        if (receiving)
                receiving->api_request = api_request;
        else
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
        return receiving;
}

void receiving_begin(struct api_request *api_request, const struct file_request *request) {
        struct receiving *receiving = receiving_new(api_request);
        struct err err = { 0 };
        if (!receiving)
                return;
        if (receiving_prepare(receiving, request, &err) < 0)
                receiving_refuse(receiving, &err);
        else
                http_attend(api_request->request, &body_events, receiving);
}

/* The sandbox exists at the remote: now the body may come. */
static void begin_remote_body(struct receiving *receiving) {
        char session[sizeof(receiving->session)], path[PATH_ROOM]; /* which are written again */
        const struct file_request request = { .session = session, .path = path };
        struct err err = { 0 };
        memcpy(session, receiving->session, sizeof(session));
        memcpy(path, receiving->directory, sizeof(path));
        if (receiving_prepare(receiving, &request, &err) < 0)
                receiving_refuse(receiving, &err);
        else
                http_attend(receiving->api_request->request, &body_events, receiving);
}

static void on_made(void *context, const char *text, size_t size, const struct err *err) {
        struct receiving *receiving = context;
        (void) size;
        receiving->ask = NULL;
        if (text)
                begin_remote_body(receiving);
        else
                receiving_refuse(receiving, err);
}

static const struct remote_ask_events make_events = { .done = on_made };

void receiving_begin_remote(struct api_request *api_request, struct session *session,
                            const struct file_request *request) {
        struct receiving *receiving = receiving_new(api_request);
        struct err err = { 0 };
        if (!receiving)
                return;
        receiving->is_remote = true;
        (void) snprintf(receiving->session, sizeof(receiving->session), "%s", session->row.id);
        (void) snprintf(receiving->directory, sizeof(receiving->directory), "%s", request->path);
        caller_begin(&api_request->caller, "file.write", request->session);
        http_attend(api_request->request, &held_events, receiving);
        int code = remote_ask_make(&api_request->caller, session, &make_events, receiving, &receiving->ask, &err);
        if (code > 0)
                begin_remote_body(receiving);
        else if (code < 0)
                receiving_refuse(receiving, &err);
}
