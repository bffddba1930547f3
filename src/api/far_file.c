#include "api/far_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/service.h"
#include "api/serving.h"
#include "base/json_bounds.h"
#include "base/memory.h"
#include "daemon/operation.h"
#include "daemon/remote.h"
#include "daemon/remote_ask.h"
#include "http/http.h"
#include "http/text.h"
#include "session/manager.h"
#include "session/session.h"
#include "session/session_config.h"
#include "store/workspace.h"

enum { ANSWER_MAX = 4 << 20 }; /* a list of 10,000 entries is a third of it */

struct far_file {
        struct api_request *api_request;
        struct remote_ask *ask; /* what is under way */
        char session_id[32];
        /* Handles the answer: starts the next operation, or answers the request. The answer is borrowed. */
        void (*then)(struct far_file *far, json_t *answer);
        char path[4096];
        char to[4096];
        bool no_links, is_directory, is_sending;
};

static void far_file_on_done(void *context, const char *text, size_t size, const struct err *err);
static bool far_file_on_data(void *context, const char *bytes, size_t size);
static const struct remote_ask_events ask_events = { .data = far_file_on_data, .done = far_file_on_done };

struct session *far_file_session(struct api_request *api_request, bool creates, struct err *err) {
        struct caller *caller = &api_request->caller;
        const char *name = api_request_user(api_request);
        bool is_created;
        err->code = ERR_NONE;
        if (!creates || session_find(caller->manager, caller->owner, name) || !remote_is_wanted(caller->manager, NULL))
                return remote_find(caller, name);
        return session_config_find_or_create(caller, name, NULL, &is_created, err);
}

/* ---- its life ---- */

/* Frees `far`, and returns the request, which is still to be answered. */
static struct api_request *far_end(struct far_file *far) {
        struct api_request *api_request = far->api_request;
        remote_ask_drop(far->ask);
        free(far);
        return api_request;
}

/* After the first bytes the client can only be informed of an error by an incomplete response. */
static void far_refuse(struct far_file *far, const struct err *err) {
        bool is_sending = far->is_sending;
        struct api_request *api_request = far_end(far);
        if (!is_sending) {
                api_request_refuse(api_request, err);
                return;
        }
        http_stream_abort(api_request->request);
        api_request_free(api_request);
}

static void far_file_on_gone(void *context) {
        api_request_free(far_end(context));
}

static void far_file_on_drained(void *context) {
        struct far_file *far = context;
        if (far->ask)
                remote_ask_feed(far->ask);
}

static const struct http_events http_events = { .on_drained = far_file_on_drained, .on_gone = far_file_on_gone };

static struct far_file *far_make(struct api_request *api_request, const struct session *session,
                                 const struct file_request *request) {
        struct far_file *far = calloc(1, sizeof(*far));
        if (!far) {
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
                return NULL;
        }
        far->api_request = api_request;
        (void) snprintf(far->session_id, sizeof(far->session_id), "%s", session->row.id);
        (void) snprintf(far->path, sizeof(far->path), "%s", request->path);
        (void) snprintf(far->to, sizeof(far->to), "%s", request->to ? request->to : "");
        far->no_links = request->no_links;
        http_attend(api_request->request, &http_events, far);
        return far;
}

/* Starts the next operation; takes the reference. The session may have been removed meanwhile. */
static void far_ask(struct far_file *far, const char *op, json_t *fields,
                    void (*then)(struct far_file *far, json_t *answer)) {
        const struct caller *caller = &far->api_request->caller;
        struct session *session = session_find(caller->manager, "", far->session_id);
        struct err err;
        far->then = then;
        if (session && session->is_remote && fields &&
            remote_ask_begin(caller, session, op, fields, &ask_events, far, &far->ask, &err) == 0)
                return;
        if (!session || !session->is_remote || !fields) {
                json_decref(fields);
                (void) err_set(&err, ERR_GONE, "the sandbox was removed or moved meanwhile; try again");
        }
        far_refuse(far, &err);
}

static void far_file_on_done(void *context, const char *text, size_t size, const struct err *err) {
        struct far_file *far = context;
        struct err damaged;
        far->ask = NULL;
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

/* A session that was made here is made at the remote with its first run or file. */
static void far_start(struct far_file *far, struct session *session,
                      void (*then)(struct far_file *far, json_t *answer)) {
        struct err err;
        far->then = then;
        int code = remote_ask_make(&far->api_request->caller, session, &ask_events, far, &far->ask, &err);
        if (code > 0)
                then(far, NULL);
        else if (code < 0)
                far_refuse(far, &err);
}

/* "/workspace/data/x.csv": as the answers name it. */
static json_t *far_describe_path(const char *relative) {
        bool is_root = strcmp(relative, ".") == 0;
        return json_sprintf("/workspace%s%s", is_root ? "" : "/", is_root ? "" : relative);
}

/* ---- read ---- */

static bool far_file_on_data(void *context, const char *bytes, size_t size) {
        const struct far_file *far = context;
        return far->is_sending && http_stream_write(far->api_request->request, bytes, size) == 0;
}

static void far_file_on_read(struct far_file *far, json_t *answer) {
        struct api_request *api_request = far_end(far);
        (void) answer;
        http_stream_end(api_request->request); /* before the announced length this aborts the response */
        api_request_free(api_request);
}

static void far_file_on_listed(struct far_file *far, json_t *answer) {
        json_t *entries = json_object_get(answer, "entries"), *entry;
        size_t i;
        json_array_foreach (entries, i, entry) {
                json_object_set(entry, "name", json_object_get(entry, "path"));
                json_object_del(entry, "path");
        }
        json_t *told = json_pack("{s:o, s:s, s:O, s:b}", "path", far_describe_path(far->path), "type", "directory",
                                 "entries", entries, "cut", (int) json_is_true(json_object_get(answer, "cut")));
        api_request_answer(far_end(far), 200, told);
}

static void send_bytes(struct far_file *far, const struct serving_file *file) {
        struct api_request *api_request = far->api_request;
        struct http_request *request = api_request->request;
        struct serving_part part;
        if (!serving_head(api_request, file, &part)) { /* answered, and gone */
                free(far);
                return;
        }
        if (http_stream_begin(request, part.status, part.type, (int64_t) part.length) < 0) {
                api_request_problem(far_end(far), 503, "busy", "the service is out of memory", "try again in a moment");
                return;
        }
        far->is_sending = true;
        if (strcmp(http_method(request), "HEAD") == 0 || part.length == 0) {
                far_file_on_read(far, NULL);
                return;
        }
        far_ask(far, "file.read",
                json_pack("{s:s, s:I, s:I, s:b}", "path", far->path, "offset", (json_int_t) part.first, "size",
                          (json_int_t) part.length, "no_links", (int) far->no_links),
                far_file_on_read);
}

static void far_file_on_looked(struct far_file *far, json_t *answer) {
        const char *type = json_string_value(json_object_get(answer, "type"));
        const char *tag = json_string_value(json_object_get(answer, "tag"));
        const char *slash = strrchr(far->path, '/');
        json_int_t size = json_integer_value(json_object_get(answer, "size"));
        struct serving_file file = { .name = slash ? slash + 1 : far->path, .size = size > 0 ? (uint64_t) size : 0 };
        struct err err;
        if (tag && strlen(tag) < sizeof(file.tag) && http_is_value(tag, strlen(tag)))
                (void) snprintf(file.tag, sizeof(file.tag), "%s", tag);
        if (type && strcmp(type, "directory") == 0 && !far->no_links)
                far_ask(far, "file.list", json_pack("{s:s}", "path", far->path), far_file_on_listed);
        else if (type && strcmp(type, "file") == 0)
                send_bytes(far, &file);
        else {
                (void) err_set(&err, type && strcmp(type, "directory") == 0 ? ERR_USAGE : ERR_REFUSED,
                               "%.200s is not a regular file", far->path);
                far_refuse(far, &err);
        }
}

static void far_file_look(struct far_file *far, json_t *answer) {
        (void) answer;
        far_ask(far, "file.stat",
                json_pack("{s:s, s:b, s:b}", "path", far->path, "follow", 1, "no_links", (int) far->no_links),
                far_file_on_looked);
}

void far_file_read(struct api_request *api_request, struct session *session, const struct file_request *request) {
        struct far_file *far = far_make(api_request, session, request);
        if (far)
                far_start(far, session, far_file_look);
}

/* ---- the rest ---- */

static void on_stat(struct far_file *far, json_t *answer) {
        api_request_answer(far_end(far), 200, json_incref(answer));
}

static void ask_stat(struct far_file *far, json_t *answer) {
        (void) answer;
        far_ask(far, "file.stat", json_pack("{s:s}", "path", far->path), on_stat);
}

void far_file_stat(struct api_request *api_request, struct session *session, const struct file_request *request) {
        struct far_file *far = far_make(api_request, session, request);
        if (far)
                far_start(far, session, ask_stat);
}

static void on_changed(struct far_file *far, json_t *answer) {
        json_t *told = json_pack("{s:o}", "path", far_describe_path(far->is_directory ? far->path : far->to));
        int status = far->is_directory ? 201 : 200;
        (void) answer;
        api_request_answer(far_end(far), status, told);
}

static void ask_change(struct far_file *far, json_t *answer) {
        (void) answer;
        if (far->is_directory)
                far_ask(far, "file.mkdir", json_pack("{s:s}", "path", far->path), on_changed);
        else
                far_ask(far, "file.move", json_pack("{s:s, s:s}", "path", far->path, "to", far->to), on_changed);
}

void far_file_change(struct api_request *api_request, struct session *session, const struct file_request *request,
                     bool is_directory) {
        struct far_file *far = far_make(api_request, session, request);
        if (!far)
                return;
        far->is_directory = is_directory;
        caller_begin(&api_request->caller, is_directory ? "file.mkdir" : "file.move", request->session);
        far_start(far, session, ask_change);
}

/* Adds its URL at this service to each. */
static void on_artifacts(struct far_file *far, json_t *answer) {
        struct api_request *api_request = far->api_request;
        _cleanup_free_ char *user = http_encode(api_request_user(api_request), false);
        json_t *artifacts = json_object_get(answer, "artifacts"), *artifact;
        size_t i;
        json_array_foreach (artifacts, i, artifact) {
                char relative[4096];
                struct err ignored;
                const char *path = json_string_value(json_object_get(artifact, "path"));
                _cleanup_free_ char *encoded = path && workspace_check_path(path, relative, &ignored) == 0
                                                       ? http_encode(relative, true)
                                                       : NULL;
                (void) json_object_del(artifact, "host_path");
                if (encoded && user)
                        (void) json_object_set_new(
                                artifact, "url", json_sprintf("/sandbox/%s/artifacts/download?path=%s", user, encoded));
        }
        (void) json_object_del(answer, "ok");
        api_request_answer(far_end(far), 200, json_incref(answer));
}

static void ask_artifacts(struct far_file *far, json_t *answer) {
        (void) answer;
        far_ask(far, "artifact.list", json_object(), on_artifacts);
}

void far_file_list_artifacts(struct api_request *api_request, struct session *session) {
        const struct file_request request = { .path = "." };
        struct far_file *far = far_make(api_request, session, &request);
        if (far)
                far_start(far, session, ask_artifacts);
}
