/* The operations follow one another: artifact.list, then file.stat and file.read of each file. The head of an entry is
 * written with its first bytes, so that a file that was removed meanwhile can still be left out. */
#include "api/remote_zip.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/file_download.h"
#include "api/zip_format.h"
#include "base/json_bounds.h"
#include "daemon/remote_ask.h"
#include "http/http.h"
#include "session/manager.h"
#include "session/session.h"
#include "store/artifact.h"
#include "store/workspace.h"

enum { ANSWER_MAX = 4 << 20 };

struct remote_zip {
        struct api_request *api_request;
        struct remote_ask *ask; /* under way; NULL: none */
        char session_id[32];
        struct zip_format *format;
        void (*then)(struct remote_zip *zip, json_t *answer); /* the answer is borrowed */
        uint64_t left;         /* bytes that the current file may still have */
        time_t modified;       /* of the current file */
        bool is_file_begun;    /* its head was written */
        bool is_asking_file;   /* the current operation is about that file only */
        bool is_waiting;       /* for room in the client's queue, before the next file */
        bool is_sending;       /* the head of the answer has gone */
        bool is_any_missing;   /* a file was missing; perhaps the sandbox is */
        bool is_broken;        /* bytes of the current file could not be passed on */
};

static void remote_zip_next_file(struct remote_zip *zip);

/* ---- creation and end ---- */

static struct api_request *remote_zip_end(struct remote_zip *zip) {
        struct api_request *api_request = zip->api_request;
        remote_ask_drop(zip->ask);
        zip_format_free(zip->format);
        free(zip);
        return api_request;
}

/* Aborts an archive that has begun: the client sees that it is incomplete. */
static void remote_zip_refuse(struct remote_zip *zip, const struct err *err) {
        bool is_sending = zip->is_sending;
        struct api_request *api_request = remote_zip_end(zip);
        if (!is_sending) {
                api_request_refuse(api_request, err);
                return;
        }
        http_stream_abort(api_request->request);
        api_request_free(api_request);
}

static void remote_zip_refuse_memory(struct remote_zip *zip) {
        struct err err;
        (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        remote_zip_refuse(zip, &err);
}

static void remote_zip_on_gone(void *context) {
        api_request_free(remote_zip_end(context));
}

static void remote_zip_on_drained(void *context) {
        struct remote_zip *zip = context;
        if (zip->ask)
                remote_ask_feed(zip->ask);
        else if (zip->is_waiting)
                remote_zip_next_file(zip);
}

static const struct http_events http_events = { .on_drained = remote_zip_on_drained, .on_gone = remote_zip_on_gone };

/* ---- asking ---- */

static bool remote_zip_on_data(void *context, const char *bytes, size_t size);
static void remote_zip_on_done(void *context, const char *text, size_t size, const struct err *err);
static const struct remote_ask_events ask_events = { .data = remote_zip_on_data, .done = remote_zip_on_done };

/* Starts the next operation; takes the reference. The session may have been removed meanwhile. */
static void remote_zip_ask(struct remote_zip *zip, const char *op, json_t *fields,
                           void (*then)(struct remote_zip *zip, json_t *answer)) {
        const struct caller *caller = &zip->api_request->caller;
        struct session *session = session_find(caller->manager, "", zip->session_id);
        struct err err;
        zip->then = then;
        zip->is_asking_file = strncmp(op, "file.", 5) == 0;
        if (session && session->is_remote && fields) {
                if (remote_ask_begin(caller, session, op, fields, &ask_events, zip, &zip->ask, &err) < 0)
                        remote_zip_refuse(zip, &err);
                return;
        }
        json_decref(fields);
        (void) err_set(&err, ERR_GONE, "the sandbox was removed or moved meanwhile; try again");
        remote_zip_refuse(zip, &err);
}

/* The file was removed, or is no regular file any more. */
static bool is_file_missing(const struct remote_zip *zip, const struct err *err) {
        return zip->is_asking_file && !zip->is_file_begun &&
               (err->code == ERR_NOT_FOUND || err->code == ERR_REFUSED || err->code == ERR_USAGE);
}

static void remote_zip_on_done(void *context, const char *text, size_t size, const struct err *err) {
        struct remote_zip *zip = context;
        struct err damaged;
        zip->ask = NULL;
        if (!text && is_file_missing(zip, err)) {
                zip->is_any_missing = true;
                zip_format_skip(zip->format);
                remote_zip_next_file(zip);
                return;
        }
        if (!text) {
                remote_zip_refuse(zip, err);
                return;
        }
        json_t *answer = size <= ANSWER_MAX && json_is_bounded(text, size) ? json_loadb(text, size, 0, NULL) : NULL;
        if (json_is_object(answer))
                zip->then(zip, answer);
        else {
                (void) err_set(&damaged, ERR_PROTOCOL, "the remote's answer is damaged, or too long");
                remote_zip_refuse(zip, &damaged);
        }
        json_decref(answer);
}

/* ---- a file ---- */

/* Its head, if that is still to be written. False: the client's queue cannot take it. */
static bool begin_file(struct remote_zip *zip, char *bytes) {
        if (zip->is_file_begun)
                return true;
        zip->is_file_begun = true;
        size_t n = zip_format_begin(zip->format, zip->left, zip->modified, bytes);
        return http_stream_write(zip->api_request->request, bytes, n) >= 0;
}

/* If bytes are lost here, the archive is aborted at the end of the file. */
static bool remote_zip_on_data(void *context, const char *bytes, size_t size) {
        static char unit[ZIP_FORMAT_UNIT_MAX]; /* one thread, one user at a time */
        struct remote_zip *zip = context;
        int code = size > zip->left || !begin_file(zip, unit) ? -1 : 0;
        for (size_t at = 0; code >= 0 && at < size;) {
                size_t n = size - at < ZIP_FORMAT_BLOCK_MAX ? size - at : ZIP_FORMAT_BLOCK_MAX;
                code = http_stream_write(zip->api_request->request, unit,
                                         zip_format_block(zip->format, bytes + at, n, unit));
                at += n;
                zip->left -= n;
        }
        zip->is_broken |= code < 0;
        return code == 0;
}

static void remote_zip_on_read(struct remote_zip *zip, json_t *answer) {
        char bytes[ZIP_FORMAT_UNIT_MAX];
        struct err err;
        (void) answer;
        if (!zip->is_broken && begin_file(zip, bytes) &&
            http_stream_write(zip->api_request->request, bytes, zip_format_end(zip->format, bytes)) >= 0) {
                remote_zip_next_file(zip);
                return;
        }
        (void) err_set(&err, ERR_PROTOCOL,
                       "the remote sent more of a file than it has, or the client takes too little");
        remote_zip_refuse(zip, &err);
}

static void remote_zip_on_looked(struct remote_zip *zip, json_t *answer) {
        const char *type = json_string_value(json_object_get(answer, "type"));
        json_int_t size = json_integer_value(json_object_get(answer, "size"));
        const struct artifact *artifact = zip_format_next(zip->format);
        if (!type || strcmp(type, "file") != 0) {
                zip_format_skip(zip->format);
                remote_zip_next_file(zip);
                return;
        }
        zip->left = size > 0 ? (uint64_t) size : 0;
        zip->modified = (time_t) (json_integer_value(json_object_get(answer, "modified")) / 1000);
        if (zip->left == 0)
                remote_zip_on_read(zip, NULL);
        else
                remote_zip_ask(zip, "file.read",
                               json_pack("{s:s, s:I, s:I, s:b}", "path", artifact->path, "offset", (json_int_t) 0,
                                         "size", size, "no_links", 1),
                               remote_zip_on_read);
}

/* ---- all of them ---- */

static void remote_zip_finish(struct remote_zip *zip, json_t *answer) {
        char bytes[ZIP_FORMAT_UNIT_MAX];
        struct http_request *request = zip->api_request->request;
        size_t n;
        int code = 0;
        (void) answer;
        while (code >= 0 && (n = zip_format_finish(zip->format, bytes)) > 0)
                code = http_stream_write(request, bytes, n);
        if (code < 0)
                http_stream_abort(request);
        else
                http_stream_end(request);
        api_request_free(remote_zip_end(zip));
}

/* The next file, once the client has taken most of the last one. */
static void remote_zip_next_file(struct remote_zip *zip) {
        const struct artifact *next = zip_format_next(zip->format);
        zip->is_file_begun = false;
        zip->is_waiting = !http_stream_wants_more(zip->api_request->request);
        if (zip->is_waiting)
                return;
        if (next)
                remote_zip_ask(zip, "file.stat",
                               json_pack("{s:s, s:b, s:b}", "path", next->path, "follow", 1, "no_links", 1),
                               remote_zip_on_looked);
        else if (zip->is_any_missing) /* an archive must not look complete if the sandbox was removed */
                remote_zip_ask(zip, "artifact.list", json_object(), remote_zip_finish);
        else
                remote_zip_finish(zip, NULL);
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

static void remote_zip_on_listed(struct remote_zip *zip, json_t *answer) {
        struct api_request *api_request = zip->api_request;
        struct artifact_list list = { 0 };
        char name[API_PARAMETER_SIZE_MAX + 32];
        if (!read_list(json_object_get(answer, "artifacts"), &list)) {
                artifact_list_release(&list);
                remote_zip_refuse_memory(zip);
                return;
        }
        (void) snprintf(name, sizeof(name), "%s-artifacts.zip", api_request_user(api_request));
        zip->format = zip_format_new(&list);
        if (!zip->format || file_download_name(api_request, name) < 0 ||
            http_stream_begin(api_request->request, 200, "application/zip", HTTP_CHUNKED) < 0) {
                remote_zip_refuse_memory(zip);
                return;
        }
        zip->is_sending = true;
        if (strcmp(http_method(api_request->request), "HEAD") != 0) {
                remote_zip_next_file(zip);
                return;
        }
        http_stream_end(api_request->request);
        api_request_free(remote_zip_end(zip));
}

static void ask_list(struct remote_zip *zip, json_t *answer) {
        (void) answer;
        remote_zip_ask(zip, "artifact.list", json_object(), remote_zip_on_listed);
}

void remote_zip_send(struct api_request *api_request, struct session *session) {
        struct remote_zip *zip = calloc(1, sizeof(*zip));
        struct err err;
        if (!zip) {
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
                return;
        }
        zip->api_request = api_request;
        (void) snprintf(zip->session_id, sizeof(zip->session_id), "%s", session->row.id);
        http_attend(api_request->request, &http_events, zip);
        zip->then = ask_list;
        int code = remote_ask_make(&api_request->caller, session, &ask_events, zip, &zip->ask, &err);
        if (code > 0)
                ask_list(zip, NULL);
        else if (code < 0)
                remote_zip_refuse(zip, &err);
}
