/* The operations follow one another: artifact.list, then file.stat and file.read of each file. The head of an entry is
 * written with its first bytes, so that a file that was removed meanwhile can still be left out. */
#include "api/far_zip.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/serving.h"
#include "api/zip_format.h"
#include "base/json_bounds.h"
#include "daemon/remote_ask.h"
#include "http/http.h"
#include "session/manager.h"
#include "session/session.h"
#include "store/artifact.h"
#include "store/workspace.h"

enum { ANSWER_MAX = 4 << 20 };

struct far_zip {
        struct api_request *api_request;
        struct remote_ask *ask; /* under way; NULL: none */
        char session_id[32];
        struct zip_format *format;
        void (*then)(struct far_zip *far, json_t *answer); /* the answer is borrowed */
        uint64_t left;         /* bytes that the current file may still have */
        time_t modified;       /* of the current file */
        bool is_file_begun;    /* its head was written */
        bool is_asking_file;   /* the current operation is about that file only */
        bool is_waiting;       /* for room in the client's queue, before the next file */
        bool is_sending;       /* the head of the answer has gone */
        bool is_any_missing;   /* a file was missing; perhaps the sandbox is */
        bool is_broken;        /* bytes of the current file could not be passed on */
};

static void go_on(struct far_zip *far);

/* ---- its life ---- */

static struct api_request *far_end(struct far_zip *far) {
        struct api_request *api_request = far->api_request;
        remote_ask_drop(far->ask);
        zip_format_free(far->format);
        free(far);
        return api_request;
}

/* Aborts an archive that has begun: the client sees that it is incomplete. */
static void far_refuse(struct far_zip *far, const struct err *err) {
        bool is_sending = far->is_sending;
        struct api_request *api_request = far_end(far);
        if (!is_sending) {
                api_request_refuse(api_request, err);
                return;
        }
        http_stream_abort(api_request->request);
        api_request_free(api_request);
}

static void far_refuse_memory(struct far_zip *far) {
        struct err err;
        (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        far_refuse(far, &err);
}

static void far_zip_on_gone(void *context) {
        api_request_free(far_end(context));
}

static void far_zip_on_drained(void *context) {
        struct far_zip *far = context;
        if (far->ask)
                remote_ask_feed(far->ask);
        else if (far->is_waiting)
                go_on(far);
}

static const struct http_events http_events = { .on_drained = far_zip_on_drained, .on_gone = far_zip_on_gone };

/* ---- asking ---- */

static bool far_zip_on_data(void *context, const char *bytes, size_t size);
static void far_zip_on_done(void *context, const char *text, size_t size, const struct err *err);
static const struct remote_ask_events ask_events = { .data = far_zip_on_data, .done = far_zip_on_done };

/* Starts the next operation; takes the reference. The session may have been removed meanwhile. */
static void far_ask(struct far_zip *far, const char *op, json_t *fields,
                    void (*then)(struct far_zip *far, json_t *answer)) {
        const struct caller *caller = &far->api_request->caller;
        struct session *session = session_find(caller->manager, "", far->session_id);
        struct err err;
        far->then = then;
        far->is_asking_file = strncmp(op, "file.", 5) == 0;
        if (session && session->is_remote && fields) {
                if (remote_ask_begin(caller, session, op, fields, &ask_events, far, &far->ask, &err) < 0)
                        far_refuse(far, &err);
                return;
        }
        json_decref(fields);
        (void) err_set(&err, ERR_GONE, "the sandbox was removed or moved meanwhile; try again");
        far_refuse(far, &err);
}

/* The file was removed, or is no regular file any more. */
static bool is_file_missing(const struct far_zip *far, const struct err *err) {
        return far->is_asking_file && !far->is_file_begun &&
               (err->code == ERR_NOT_FOUND || err->code == ERR_REFUSED || err->code == ERR_USAGE);
}

static void far_zip_on_done(void *context, const char *text, size_t size, const struct err *err) {
        struct far_zip *far = context;
        struct err damaged;
        far->ask = NULL;
        if (!text && is_file_missing(far, err)) {
                far->is_any_missing = true;
                zip_format_skip(far->format);
                go_on(far);
                return;
        }
        if (!text) {
                far_refuse(far, err);
                return;
        }
        json_t *answer = size <= ANSWER_MAX && json_is_bounded(text, size) ? json_loadb(text, size, 0, NULL) : NULL;
        if (json_is_object(answer))
                far->then(far, answer);
        else {
                (void) err_set(&damaged, ERR_PROTOCOL, "the remote's answer is damaged, or too long");
                far_refuse(far, &damaged);
        }
        json_decref(answer);
}

/* ---- a file ---- */

/* Its head, if that is still to be written. False: the client's queue cannot take it. */
static bool begin_file(struct far_zip *far, char *bytes) {
        if (far->is_file_begun)
                return true;
        far->is_file_begun = true;
        size_t n = zip_format_begin(far->format, far->left, far->modified, bytes);
        return http_stream_write(far->api_request->request, bytes, n) >= 0;
}

/* If bytes are lost here, the archive is aborted at the end of the file. */
static bool far_zip_on_data(void *context, const char *bytes, size_t size) {
        static char unit[ZIP_FORMAT_UNIT_MAX]; /* one thread, one user at a time */
        struct far_zip *far = context;
        int code = size > far->left || !begin_file(far, unit) ? -1 : 0;
        for (size_t at = 0; code >= 0 && at < size;) {
                size_t n = size - at < ZIP_FORMAT_BLOCK_MAX ? size - at : ZIP_FORMAT_BLOCK_MAX;
                code = http_stream_write(far->api_request->request, unit,
                                         zip_format_block(far->format, bytes + at, n, unit));
                at += n;
                far->left -= n;
        }
        far->is_broken |= code < 0;
        return code == 0;
}

static void far_zip_on_read(struct far_zip *far, json_t *answer) {
        char bytes[ZIP_FORMAT_UNIT_MAX];
        struct err err;
        (void) answer;
        if (!far->is_broken && begin_file(far, bytes) &&
            http_stream_write(far->api_request->request, bytes, zip_format_end(far->format, bytes)) >= 0) {
                go_on(far);
                return;
        }
        (void) err_set(&err, ERR_PROTOCOL,
                       "the remote sent more of a file than it has, or the client takes too little");
        far_refuse(far, &err);
}

static void far_zip_on_looked(struct far_zip *far, json_t *answer) {
        const char *type = json_string_value(json_object_get(answer, "type"));
        json_int_t size = json_integer_value(json_object_get(answer, "size"));
        const struct artifact *artifact = zip_format_next(far->format);
        if (!type || strcmp(type, "file") != 0) {
                zip_format_skip(far->format);
                go_on(far);
                return;
        }
        far->left = size > 0 ? (uint64_t) size : 0;
        far->modified = (time_t) (json_integer_value(json_object_get(answer, "modified")) / 1000);
        if (far->left == 0)
                far_zip_on_read(far, NULL);
        else
                far_ask(far, "file.read",
                        json_pack("{s:s, s:I, s:I, s:b}", "path", artifact->path, "offset", (json_int_t) 0, "size",
                                  size, "no_links", 1),
                        far_zip_on_read);
}

/* ---- all of them ---- */

static void finish(struct far_zip *far, json_t *answer) {
        char bytes[ZIP_FORMAT_UNIT_MAX];
        struct http_request *request = far->api_request->request;
        size_t n;
        int code = 0;
        (void) answer;
        while (code >= 0 && (n = zip_format_finish(far->format, bytes)) > 0)
                code = http_stream_write(request, bytes, n);
        if (code < 0)
                http_stream_abort(request);
        else
                http_stream_end(request);
        api_request_free(far_end(far));
}

/* The next file, once the client has taken most of the last one. */
static void go_on(struct far_zip *far) {
        const struct artifact *next = zip_format_next(far->format);
        far->is_file_begun = false;
        far->is_waiting = !http_stream_wants_more(far->api_request->request);
        if (far->is_waiting)
                return;
        if (next)
                far_ask(far, "file.stat", json_pack("{s:s, s:b, s:b}", "path", next->path, "follow", 1, "no_links", 1),
                        far_zip_on_looked);
        else if (far->is_any_missing) /* an archive must not look complete if the sandbox was removed */
                far_ask(far, "artifact.list", json_object(), finish);
        else
                finish(far, NULL);
}

/* The remote's list, which may be anything: only paths below artifacts/ are taken. False: out of memory. */
static bool read_list(const json_t *artifacts, struct artifact_list *ret_list) {
        size_t i, n = json_array_size(artifacts);
        json_t *value;
        ret_list->items = calloc(n ? n : 1, sizeof(*ret_list->items));
        if (!ret_list->items)
                return false;
        json_array_foreach (artifacts, i, value) {
                char relative[ARTIFACT_PATH_MAX];
                struct err ignored;
                const char *path = json_string_value(json_object_get(value, "path"));
                if (!path || workspace_check_path(path, relative, &ignored) < 0 ||
                    strncmp(relative, "artifacts/", strlen("artifacts/")) != 0)
                        continue;
                struct artifact *item = &ret_list->items[ret_list->count];
                item->path = strdup(relative);
                if (!item->path)
                        return false;
                ret_list->count++;
        }
        return true;
}

static void far_zip_on_listed(struct far_zip *far, json_t *answer) {
        struct api_request *api_request = far->api_request;
        struct artifact_list list = { 0 };
        char name[API_PARAMETER_SIZE_MAX + 32];
        if (!read_list(json_object_get(answer, "artifacts"), &list)) {
                artifact_list_release(&list);
                far_refuse_memory(far);
                return;
        }
        (void) snprintf(name, sizeof(name), "%s-artifacts.zip", api_request_user(api_request));
        far->format = zip_format_new(&list);
        if (!far->format || serving_name(api_request, name) < 0 ||
            http_stream_begin(api_request->request, 200, "application/zip", HTTP_CHUNKED) < 0) {
                far_refuse_memory(far);
                return;
        }
        far->is_sending = true;
        if (strcmp(http_method(api_request->request), "HEAD") != 0) {
                go_on(far);
                return;
        }
        http_stream_end(api_request->request);
        api_request_free(far_end(far));
}

static void ask_list(struct far_zip *far, json_t *answer) {
        (void) answer;
        far_ask(far, "artifact.list", json_object(), far_zip_on_listed);
}

void far_zip_send(struct api_request *api_request, struct session *session) {
        struct far_zip *far = calloc(1, sizeof(*far));
        struct err err;
        if (!far) {
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
                return;
        }
        far->api_request = api_request;
        (void) snprintf(far->session_id, sizeof(far->session_id), "%s", session->row.id);
        http_attend(api_request->request, &http_events, far);
        far->then = ask_list;
        int code = remote_ask_make(&api_request->caller, session, &ask_events, far, &far->ask, &err);
        if (code > 0)
                ask_list(far, NULL);
        else if (code < 0)
                far_refuse(far, &err);
}
