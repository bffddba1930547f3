#include "api/receiving.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/file.h"
#include "api/service.h"
#include "base/fd.h"
#include "base/memory.h"
#include "http/multipart.h"
#include "http/text.h"
#include "session/session.h"
#include "store/workspace.h"

enum {
        FILES_MAX = 32,       /* of one request: each holds two descriptors */
        PATH_ROOM = 4096,
};

struct received {
        struct workspace_file file;
        char *path; /* below the workspace */
        uint64_t size;
};

struct receiving {
        struct api_request *api_request;
        char session_id[27];
        int workspace_fd;
        uint64_t max;          /* of one file */
        char directory[4096];  /* where parts go */
        struct multipart *multipart; /* NULL: the body is the file */
        bool in_field;         /* the part is a field, not a file */
        char field[PATH_ROOM];
        size_t field_size;
        bool is_crowded;       /* there is no room for one more file */
        struct received files[FILES_MAX];
        size_t n;
};

static struct share_claim claim_of(const struct receiving *receiving, size_t n) {
        return (struct share_claim) { .key = receiving->api_request->visitor.owner, .amount = n };
}

static void receiving_free(struct receiving *receiving) {
        struct api_request *api_request = receiving->api_request;
        struct session *session = session_find(api_request->service->manager, api_request->visitor.owner,
                                               receiving->session_id);
        for (size_t i = 0; i < receiving->n; i++) {
                if (session && receiving->files[i].file.fd >= 0) /* not put into its place */
                        disk_give_back(session, receiving->files[i].size);
                workspace_drop_file(&receiving->files[i].file);
                free(receiving->files[i].path);
        }
        const struct share_claim all = claim_of(receiving, receiving->n);
        share_give(&receiving->api_request->service->manager->shares, SHARE_FILES, &all);
        multipart_close(receiving->multipart);
        fd_close(&receiving->workspace_fd);
        free(receiving);
}

static void refuse(struct receiving *receiving, const struct err *err) {
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

static void on_gone(void *context) {
        struct receiving *receiving = context;
        struct api_request *api_request = receiving->api_request;
        receiving_free(receiving);
        api_request_free(api_request);
}

/* ---- one file ---- */

static int add_file(struct receiving *receiving, const char *relative, struct err *err) {
        struct received *received = &receiving->files[receiving->n];
        if (receiving->n == FILES_MAX)
                return err_set(err, ERR_LIMIT, "at most %d files can be sent at once", FILES_MAX);
        const struct share_claim one = claim_of(receiving, 1);
        struct share_table *shares = &receiving->api_request->service->manager->shares;
        if (share_take(shares, SHARE_FILES, &one, err) < 0) {
                receiving->is_crowded = true;
                return -1;
        }
        if (file_check_name(relative, err) < 0 ||
            workspace_create_file(receiving->workspace_fd, relative, &received->file, err) < 0) {
                share_give(shares, SHARE_FILES, &one);
                return -1;
        }
        received->size = 0;
        received->path = strdup(relative);
        receiving->n++;
        return received->path ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

static int add_bytes(struct receiving *receiving, const char *bytes, size_t size, struct err *err) {
        struct received *received = &receiving->files[receiving->n - 1];
        if (size > receiving->max - received->size)
                return err_set(err, ERR_LIMIT, "the file is larger than %llu bytes, which is the most it may have",
                               (unsigned long long) receiving->max);
        struct api_request *api_request = receiving->api_request;
        struct session_manager *manager = api_request->service->manager;
        struct session *session = session_find(manager, api_request->visitor.owner, receiving->session_id);
        if (disk_admit(manager, session, size, err) < 0)
                return -1;
        received->size += size;
        int code = fd_write_all(received->file.fd, bytes, size);
        return code < 0 ? err_sys(err, -code, "writing %.200s", received->path) : 0;
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
                               : err_set(err, ERR_USAGE, "the part \"%.100s\" has no file name; besides files there is "
                                         "only \"path\", the directory that they go to", part->name);
        if (!*part->file_name || *part->file_name == '/')
                return err_set(err, ERR_USAGE, "a file name in the form is empty, or begins with a slash");
        (void) snprintf(joined, sizeof(joined), "%s/%s", receiving->directory, part->file_name);
        return workspace_check_path(joined, relative, err) < 0 ? -1 : add_file(receiving, relative, err);
}

static int on_data(void *context, const char *bytes, size_t size, struct err *err) {
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
                return 0;
        receiving->field[receiving->field_size] = '\0';
        return workspace_check_path(receiving->field, receiving->directory, err);
}

static const struct multipart_events form_events = { on_part, on_data, on_part_end };

/* ---- the body ---- */

static void on_body(void *context, const char *bytes, size_t size) {
        struct receiving *receiving = context;
        struct err err;
        int code = receiving->multipart ? multipart_feed(receiving->multipart, bytes, size, &err)
                                        : add_bytes(receiving, bytes, size, &err);
        if (code < 0)
                refuse(receiving, &err);
}

/* Puts everything in place. What fails leaves the rest undone; what was put before it stays. */
static json_t *finish_files(struct receiving *receiving, bool *ret_created, struct err *err) {
        json_t *list = json_array();
        for (size_t i = 0; i < receiving->n; i++) {
                struct received *received = &receiving->files[i];
                char path[4200];
                if (workspace_finish_file(&received->file, err) < 0) {
                        json_decref(list);
                        return NULL;
                }
                *ret_created |= !received->file.replaced;
                (void) snprintf(path, sizeof(path), "/workspace/%s", received->path);
                json_array_append_new(list, json_pack("{s:s, s:I}", "path", path, "size", (json_int_t) received->size));
        }
        return list;
}

static void on_body_end(void *context) {
        struct receiving *receiving = context;
        struct api_request *api_request = receiving->api_request;
        struct err err;
        bool is_created = false;
        json_t *list = NULL;
        if (!receiving->multipart || multipart_finish(receiving->multipart, &err) == 0) {
                if (receiving->n == 0)
                        (void) err_set(&err, ERR_USAGE, "there is no file in the form");
                else if (!session_find(api_request->service->manager, api_request->visitor.owner, receiving->session_id))
                        (void) err_set(&err, ERR_GONE, "the sandbox was destroyed meanwhile");
                else
                        list = finish_files(receiving, &is_created, &err);
        }
        if (!list) {
                refuse(receiving, &err);
                return;
        }
        json_t *answer = receiving->multipart ? json_pack("{s:O}", "files", list)
                                              : json_incref(json_array_get(list, 0));
        json_decref(list);
        receiving_free(receiving);
        api_request_answer(api_request, is_created ? 201 : 200, answer);
}

static const struct http_events body_events = { .on_body = on_body, .on_body_end = on_body_end, .on_gone = on_gone };

bool receiving_is_form(const struct api_request *api_request) {
        const char *type = http_header(api_request->request, "Content-Type");
        return type && http_same_sized(type, strcspn(type, "; \t"), "multipart/form-data");
}

static int prepare(struct receiving *receiving, const struct session *session, const char *relative, struct err *err) {
        const struct http_request *request = receiving->api_request->request;
        const char *type = http_header(request, "Content-Type");
        int64_t length = http_content_length(request);
        receiving->workspace_fd = session_open_workspace(session);
        if (receiving->workspace_fd < 0)
                return err_sys(err, -receiving->workspace_fd, "opening the files of the sandbox");
        (void) snprintf(receiving->session_id, sizeof(receiving->session_id), "%s", session->row.id);
        (void) snprintf(receiving->directory, sizeof(receiving->directory), "%s", relative);
        struct session_manager *manager = receiving->api_request->service->manager;
        if (disk_admit(manager, session_find(manager, "", session->row.id), 0, err) < 0)
                return -1;
        if (receiving_is_form(receiving->api_request))
                return multipart_open(type, &form_events, receiving, &receiving->multipart, err);
        if (length > 0 && (uint64_t) length > receiving->max)
                return err_set(err, ERR_LIMIT, "the file has %lld bytes, and may have %llu at most", (long long) length,
                               (unsigned long long) receiving->max);
        return add_file(receiving, relative, err);
}

void receiving_begin(struct api_request *api_request, const struct session *session, const char *relative) {
        struct receiving *receiving = calloc(1, sizeof(*receiving));
        uint64_t disk_max = session->row.limits.disk_bytes, upload_max = api_request->service->settings->upload_max;
        struct err err = { 0 };
        if (!receiving) {
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
                return;
        }
        receiving->api_request = api_request;
        receiving->max = disk_max < upload_max ? disk_max : upload_max;
        if (prepare(receiving, session, relative, &err) < 0)
                refuse(receiving, &err);
        else
                http_attend(api_request->request, &body_events, receiving);
}
