#include "api/body_upload.h"

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
#include "http/limits.h"
#include "http/multipart.h"
#include "http/text.h"
#include "session/manager.h"
#include "session/session.h"
#include "store/workspace.h"

enum {
        FILES_MAX = 32,       /* of one request: each holds two descriptors */
        PATH_ROOM = 4096,
};

struct body_upload {
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

static struct share_claim body_upload_claim(const struct body_upload *upload, size_t n) {
        return (struct share_claim) { .key = upload->api_request->visitor.owner, .amount = n };
}

static void body_upload_free(struct body_upload *upload) {
        remote_ask_drop(upload->ask);
        for (size_t i = 0; i < upload->n; i++) {
                file_receiver_abandon(&upload->files[i]);
                remote_receiver_drop(upload->remote_files[i]);
        }
        const struct share_claim all = body_upload_claim(upload, upload->n);
        share_give(&upload->api_request->service->manager->shares, SHARE_FILES, &all);
        multipart_close(upload->multipart);
        free(upload);
}

static void body_upload_refuse(struct body_upload *upload, const struct err *err) {
        struct api_request *api_request = upload->api_request;
        bool is_crowded = upload->is_crowded;
        body_upload_free(upload);
        if (is_crowded)
                api_request_problem(api_request, 429, "limit", err->message, NULL);
        else if (err->code == ERR_LIMIT)
                api_request_problem(api_request, 413, "too_large", err->message, NULL);
        else
                api_request_refuse(api_request, err);
}

static void body_upload_on_gone(void *context) {
        struct body_upload *upload = context;
        struct api_request *api_request = upload->api_request;
        body_upload_free(upload);
        api_request_free(api_request);
}

/* ---- one file, there ---- */

static void answer_remote(struct body_upload *upload) {
        struct api_request *api_request = upload->api_request;
        json_t *list = json_array();
        bool is_created = false;
        for (size_t i = 0; i < upload->n; i++) {
                const struct remote_receiver *receiver = upload->remote_files[i];
                is_created |= remote_receiver_is_created(receiver);
                json_array_append_new(list, json_pack("{s:o, s:I}", "path",
                                                      json_sprintf("/workspace/%s", remote_receiver_path(receiver)),
                                                      "size", (json_int_t) remote_receiver_size(receiver)));
        }
        json_t *answer = upload->multipart ? json_pack("{s:O}", "files", list) : json_incref(json_array_get(list, 0));
        json_decref(list);
        body_upload_free(upload);
        api_request_answer(api_request, is_created ? 201 : 200, answer);
}

static void on_remote_room(void *context) {
        struct body_upload *upload = context;
        if (!upload->is_held || upload->is_ended)
                return;
        upload->is_held = false;
        http_attend(upload->api_request->request, &body_events, upload);
}

static void on_remote_done(void *context, const struct err *err) {
        struct body_upload *upload = context;
        upload->n_done++;
        if (err)
                body_upload_refuse(upload, err);
        else if (upload->is_ended && upload->n_done == upload->n)
                answer_remote(upload);
}

static const struct remote_receiver_events remote_events = { on_remote_room, on_remote_done };

static int add_remote_file(struct body_upload *upload, const char *relative, struct err *err) {
        struct api_request *api_request = upload->api_request;
        struct session *session = session_find(api_request->caller.manager, "", upload->session);
        if (!session || !session->is_remote)
                return err_set(err, ERR_GONE, "the sandbox was removed or moved while %.200s arrived", relative);
        if (remote_receiver_begin(&api_request->caller, session, relative, api_request->service->settings->upload_max,
                                  &remote_events, upload, &upload->remote_files[upload->n], err) < 0)
                return -1;
        upload->n++;
        return 0;
}

/* The remote, or the connection to it, is slower than the client: the client waits. */
static int add_remote_bytes(struct body_upload *upload, const char *bytes, size_t size, struct err *err) {
        int code = remote_receiver_piece(upload->remote_files[upload->n - 1], bytes, size, err);
        if (code > 0 && !upload->is_held) {
                upload->is_held = true;
                http_attend(upload->api_request->request, &held_events, upload);
        }
        return code < 0 ? -1 : 0;
}

/* ---- one file ---- */

static int add_file(struct body_upload *upload, const char *relative, struct err *err) {
        struct api_request *api_request = upload->api_request;
        struct file_receiver *receiver = &upload->files[upload->n];
        const struct file_request request = { .session = upload->session,
                                              .path = relative,
                                              .creates = upload->creates };
        if (upload->n == FILES_MAX)
                return err_set(err, ERR_LIMIT, "at most %d files can be sent at once", FILES_MAX);
        const struct share_claim one = body_upload_claim(upload, 1);
        struct share_table *shares = &api_request->service->manager->shares;
        if (share_take(shares, SHARE_FILES, &one, err) < 0) {
                upload->is_crowded = true;
                return -1;
        }
        if (upload->is_remote) {
                if (file_check_name(relative, err) == 0 && add_remote_file(upload, relative, err) == 0)
                        return 0;
                share_give(shares, SHARE_FILES, &one);
                return -1;
        }
        /* The quota of sandboxes is checked when it is made: others may have been made meanwhile. */
        if (file_check_name(relative, err) < 0 ||
            (upload->creates && !sandbox_has_room(api_request, upload->session, err)) ||
            file_receiver_begin(&api_request->caller, &request, api_request->service->settings->upload_max, receiver,
                                err) < 0) {
                upload->is_crowded = err->code == ERR_LIMIT; /* not the size of the file */
                share_give(shares, SHARE_FILES, &one);
                return -1;
        }
        (void) snprintf(upload->session, sizeof(upload->session), "%s", receiver->session_id);
        upload->creates = false;
        upload->n++;
        return 0;
}

static int add_bytes(struct body_upload *upload, const char *bytes, size_t size, struct err *err) {
        if (upload->is_remote)
                return add_remote_bytes(upload, bytes, size, err);
        return file_receiver_piece(&upload->files[upload->n - 1], bytes, size, err);
}

/* ---- a form ---- */

static int on_part(void *context, const struct multipart_part *part, struct err *err) {
        struct body_upload *upload = context;
        char joined[PATH_ROOM + MULTIPART_NAME_MAX + 2], relative[4096];
        upload->in_field = !part->file_name;
        upload->field_size = 0;
        if (!part->file_name)
                return strcmp(part->name, "path") == 0
                               ? 0
                               : err_set(err, ERR_USAGE,
                                         "the part \"%.100s\" has no file name; besides files there is "
                                         "only \"path\", the directory that they go to",
                                         part->name);
        if (!*part->file_name || *part->file_name == '/')
                return err_set(err, ERR_USAGE, "a file name in the form is empty, or begins with a slash");
        (void) snprintf(joined, sizeof(joined), "%s/%s", upload->directory, part->file_name);
        return workspace_check_path(joined, relative, err) < 0 ? -1 : add_file(upload, relative, err);
}

static int body_upload_on_data(void *context, const char *bytes, size_t size, struct err *err) {
        struct body_upload *upload = context;
        if (!upload->in_field)
                return add_bytes(upload, bytes, size, err);
        if (size >= sizeof(upload->field) - upload->field_size || memchr(bytes, '\0', size))
                return err_set(err, ERR_USAGE, "the field \"path\" is too long, or holds a NUL");
        memcpy(upload->field + upload->field_size, bytes, size);
        upload->field_size += size;
        return 0;
}

static int on_part_end(void *context, struct err *err) {
        struct body_upload *upload = context;
        if (!upload->in_field)
                return upload->is_remote ? remote_receiver_finish(upload->remote_files[upload->n - 1], err) : 0;
        upload->field[upload->field_size] = '\0';
        return workspace_check_path(upload->field, upload->directory, err);
}

static const struct multipart_events form_events = { on_part, body_upload_on_data, on_part_end };

/* ---- the body ---- */

static void on_body(void *context, const char *bytes, size_t size) {
        struct body_upload *upload = context;
        struct err err;
        int code = upload->multipart ? multipart_feed(upload->multipart, bytes, size, &err)
                                     : add_bytes(upload, bytes, size, &err);
        if (code < 0)
                body_upload_refuse(upload, &err);
}

/* Gives all files their names. After a failure the rest is dropped; files before it stay. */
static json_t *finish_files(struct body_upload *upload, bool *ret_created, struct err *err) {
        json_t *list = json_array();
        for (size_t i = 0; i < upload->n; i++) {
                struct file_receiver *receiver = &upload->files[i];
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
static void end_remote(struct body_upload *upload) {
        struct err err = { 0 };
        int code = upload->multipart ? multipart_finish(upload->multipart, &err)
                                     : remote_receiver_finish(upload->remote_files[0], &err);
        if (code == 0 && upload->n == 0)
                code = err_set(&err, ERR_USAGE, "there is no file in the form");
        upload->is_ended = true;
        http_attend(upload->api_request->request, &held_events, upload);
        if (code < 0)
                body_upload_refuse(upload, &err);
        else if (upload->n_done == upload->n)
                answer_remote(upload);
}

static void on_body_end(void *context) {
        struct body_upload *upload = context;
        if (upload->is_remote) {
                end_remote(upload);
                return;
        }
        struct api_request *api_request = upload->api_request;
        struct err err;
        bool is_created = false;
        json_t *list = NULL;
        if (!upload->multipart || multipart_finish(upload->multipart, &err) == 0) {
                if (upload->n == 0)
                        (void) err_set(&err, ERR_USAGE, "there is no file in the form");
                else
                        list = finish_files(upload, &is_created, &err);
        }
        if (!list) {
                body_upload_refuse(upload, &err);
                return;
        }
        json_t *answer = upload->multipart ? json_pack("{s:O}", "files", list) : json_incref(json_array_get(list, 0));
        json_decref(list);
        body_upload_free(upload);
        api_request_answer(api_request, is_created ? 201 : 200, answer);
}

static const struct http_events held_events = { .on_gone = body_upload_on_gone };
static const struct http_events body_events = { .on_body = on_body,
                                                .on_body_end = on_body_end,
                                                .on_gone = body_upload_on_gone };

bool body_upload_is_form(const struct api_request *api_request) {
        const char *type = http_header(api_request->request, "Content-Type");
        return type && http_same_sized(type, strcspn(type, "; \t"), "multipart/form-data");
}

/* A sandbox is made for it only when a file comes, after the checks of its head. */
static int body_upload_prepare(struct body_upload *upload, const struct file_request *request, struct err *err) {
        const struct api_request *api_request = upload->api_request;
        int64_t length = http_content_length(api_request->request);
        (void) snprintf(upload->session, sizeof(upload->session), "%s", request->session);
        (void) snprintf(upload->directory, sizeof(upload->directory), "%s", request->path);
        upload->creates = request->creates;
        if (body_upload_is_form(api_request))
                return multipart_open(http_header(api_request->request, "Content-Type"), &form_events, upload,
                                      &upload->multipart, err);
        if (add_file(upload, request->path, err) < 0)
                return -1;
        return length > 0 && !upload->is_remote ? file_receiver_check_size(&upload->files[0], (uint64_t) length, err)
                                                : 0;
}

/* NULL: the request is answered. */
static struct body_upload *body_upload_new(struct api_request *api_request) {
        struct body_upload *upload = calloc(1, sizeof(*upload));
        if (upload)
                upload->api_request = api_request;
        else
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
        return upload;
}

void body_upload_begin(struct api_request *api_request, const struct file_request *request) {
        struct body_upload *upload = body_upload_new(api_request);
        struct err err = { 0 };
        if (!upload)
                return;
        if (body_upload_prepare(upload, request, &err) < 0)
                body_upload_refuse(upload, &err);
        else
                http_attend(api_request->request, &body_events, upload);
}

/* The sandbox exists at the remote: now the body may come. */
static void begin_remote_body(struct body_upload *upload) {
        char session[sizeof(upload->session)], path[PATH_ROOM]; /* which are written again */
        const struct file_request request = { .session = session, .path = path };
        struct err err = { 0 };
        memcpy(session, upload->session, sizeof(session));
        memcpy(path, upload->directory, sizeof(path));
        if (body_upload_prepare(upload, &request, &err) < 0)
                body_upload_refuse(upload, &err);
        else
                http_attend(upload->api_request->request, &body_events, upload);
}

static void on_made(void *context, const char *text, size_t size, const struct err *err) {
        struct body_upload *upload = context;
        (void) size;
        upload->ask = NULL;
        if (text)
                begin_remote_body(upload);
        else
                body_upload_refuse(upload, err);
}

static const struct remote_ask_events make_events = { .done = on_made };

void body_upload_begin_remote(struct api_request *api_request, struct session *session,
                              const struct file_request *request) {
        struct body_upload *upload = body_upload_new(api_request);
        struct err err = { 0 };
        if (!upload)
                return;
        upload->is_remote = true;
        (void) snprintf(upload->session, sizeof(upload->session), "%s", session->row.id);
        (void) snprintf(upload->directory, sizeof(upload->directory), "%s", request->path);
        caller_begin(&api_request->caller, "file.write", request->session);
        http_attend(api_request->request, &held_events, upload);
        int code = remote_ask_make(&api_request->caller, session, &make_events, upload, &upload->ask, &err);
        if (code > 0)
                begin_remote_body(upload);
        else if (code < 0)
                body_upload_refuse(upload, &err);
}
