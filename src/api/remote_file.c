#include "api/remote_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/file_download.h"
#include "api/service.h"
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

struct remote_file {
        struct api_request *api_request;
        struct remote_ask *ask; /* what is under way */
        char session_id[32];
        /* Handles the answer: starts the next operation, or answers the request. The answer is borrowed. */
        void (*then)(struct remote_file *remote, json_t *answer);
        char path[4096];
        char to[4096];
        bool no_links, is_directory, is_sending;
};

static void remote_file_on_done(void *context, const char *text, size_t size, const struct err *err);
static bool remote_file_on_data(void *context, const char *bytes, size_t size);
static const struct remote_ask_events ask_events = { .data = remote_file_on_data, .done = remote_file_on_done };

struct session *remote_file_session(struct api_request *api_request, bool creates, struct err *err) {
        struct caller *caller = &api_request->caller;
        const char *name = api_request_user(api_request);
        bool is_created;
        err->code = ERR_NONE;
        if (!creates || session_find(caller->manager, caller->owner, name) || !remote_is_wanted(caller->manager, NULL))
                return remote_find(caller, name);
        return session_config_find_or_create(caller, name, NULL, &is_created, err);
}

/* ---- creation and end ---- */

/* Frees `remote`, and returns the request, which is still to be answered. */
static struct api_request *remote_file_end(struct remote_file *remote) {
        struct api_request *api_request = remote->api_request;
        remote_ask_drop(remote->ask);
        free(remote);
        return api_request;
}

/* After the first bytes the client can only be informed of an error by an incomplete response. */
static void remote_file_refuse(struct remote_file *remote, const struct err *err) {
        bool is_sending = remote->is_sending;
        struct api_request *api_request = remote_file_end(remote);
        if (!is_sending) {
                api_request_refuse(api_request, err);
                return;
        }
        http_stream_abort(api_request->request);
        api_request_free(api_request);
}

static void remote_file_on_gone(void *context) {
        api_request_free(remote_file_end(context));
}

static void remote_file_on_drained(void *context) {
        struct remote_file *remote = context;
        if (remote->ask)
                remote_ask_feed(remote->ask);
}

static const struct http_events http_events = { .on_drained = remote_file_on_drained, .on_gone = remote_file_on_gone };

static struct remote_file *remote_file_make(struct api_request *api_request, const struct session *session,
                                            const struct file_request *request) {
        struct remote_file *remote = calloc(1, sizeof(*remote));
        if (!remote) {
                api_request_problem(api_request, 503, "busy", "the service is out of memory", "try again in a moment");
                return NULL;
        }
        remote->api_request = api_request;
        (void) snprintf(remote->session_id, sizeof(remote->session_id), "%s", session->row.id);
        (void) snprintf(remote->path, sizeof(remote->path), "%s", request->path);
        (void) snprintf(remote->to, sizeof(remote->to), "%s", request->to ? request->to : "");
        remote->no_links = request->no_links;
        http_attend(api_request->request, &http_events, remote);
        return remote;
}

/* Starts the next operation; takes the reference. The session may have been removed meanwhile. */
static void remote_file_ask(struct remote_file *remote, const char *op, json_t *fields,
                            void (*then)(struct remote_file *remote, json_t *answer)) {
        const struct caller *caller = &remote->api_request->caller;
        struct session *session = session_find(caller->manager, "", remote->session_id);
        struct err err;
        remote->then = then;
        if (session && session->is_remote && fields &&
            remote_ask_begin(caller, session, op, fields, &ask_events, remote, &remote->ask, &err) == 0)
                return;
        if (!session || !session->is_remote || !fields) {
                json_decref(fields);
                (void) err_set(&err, ERR_GONE, "the sandbox was removed or moved meanwhile; try again");
        }
        remote_file_refuse(remote, &err);
}

static void remote_file_on_done(void *context, const char *text, size_t size, const struct err *err) {
        struct remote_file *remote = context;
        struct err damaged;
        remote->ask = NULL;
        if (!text) {
                remote_file_refuse(remote, err);
                return;
        }
        json_t *answer = size <= ANSWER_MAX && json_is_bounded(text, size) ? json_loadb(text, size, 0, NULL) : NULL;
        if (json_is_object(answer))
                remote->then(remote, answer);
        else {
                (void) err_set(&damaged, ERR_PROTOCOL, "the remote's answer is damaged, or too long");
                remote_file_refuse(remote, &damaged);
        }
        json_decref(answer);
}

/* A session that was made here is made at the remote with its first run or file. */
static void remote_file_start(struct remote_file *remote, struct session *session,
                              void (*then)(struct remote_file *remote, json_t *answer)) {
        struct err err;
        remote->then = then;
        int code = remote_ask_make(&remote->api_request->caller, session, &ask_events, remote, &remote->ask, &err);
        if (code > 0)
                then(remote, NULL);
        else if (code < 0)
                remote_file_refuse(remote, &err);
}

/* "/workspace/data/x.csv": as the answers name it. */
static json_t *remote_file_describe_path(const char *relative) {
        bool is_root = strcmp(relative, ".") == 0;
        return json_sprintf("/workspace%s%s", is_root ? "" : "/", is_root ? "" : relative);
}

/* ---- read ---- */

static bool remote_file_on_data(void *context, const char *bytes, size_t size) {
        const struct remote_file *remote = context;
        return remote->is_sending && http_stream_write(remote->api_request->request, bytes, size) == 0;
}

static void remote_file_on_read(struct remote_file *remote, json_t *answer) {
        struct api_request *api_request = remote_file_end(remote);
        (void) answer;
        http_stream_end(api_request->request); /* before the announced length this aborts the response */
        api_request_free(api_request);
}

static void remote_file_on_listed(struct remote_file *remote, json_t *answer) {
        json_t *entries = json_object_get(answer, "entries"), *entry;
        size_t i;
        json_array_foreach (entries, i, entry) {
                json_object_set(entry, "name", json_object_get(entry, "path"));
                json_object_del(entry, "path");
        }
        json_t *result =
                json_pack("{s:o, s:s, s:O, s:b}", "path", remote_file_describe_path(remote->path), "type", "directory",
                          "entries", entries, "cut", (int) json_is_true(json_object_get(answer, "cut")));
        api_request_answer(remote_file_end(remote), 200, result);
}

static void send_bytes(struct remote_file *remote, const struct file_download_file *file) {
        struct api_request *api_request = remote->api_request;
        struct http_request *request = api_request->request;
        struct file_download_part part;
        if (!file_download_head(api_request, file, &part)) { /* answered, and gone */
                free(remote);
                return;
        }
        if (http_stream_begin(request, part.status, part.type, (int64_t) part.length) < 0) {
                api_request_problem(remote_file_end(remote), 503, "busy", "the service is out of memory",
                                    "try again in a moment");
                return;
        }
        remote->is_sending = true;
        if (strcmp(http_method(request), "HEAD") == 0 || part.length == 0) {
                remote_file_on_read(remote, NULL);
                return;
        }
        remote_file_ask(remote, "file.read",
                        json_pack("{s:s, s:I, s:I, s:b}", "path", remote->path, "offset", (json_int_t) part.first,
                                  "size", (json_int_t) part.length, "no_links", (int) remote->no_links),
                        remote_file_on_read);
}

static void remote_file_on_looked(struct remote_file *remote, json_t *answer) {
        const char *type = json_string_value(json_object_get(answer, "type"));
        const char *tag = json_string_value(json_object_get(answer, "tag"));
        const char *slash = strrchr(remote->path, '/');
        json_int_t size = json_integer_value(json_object_get(answer, "size"));
        struct file_download_file file = { .name = slash ? slash + 1 : remote->path,
                                           .size = size > 0 ? (uint64_t) size : 0 };
        struct err err;
        if (tag && strlen(tag) < sizeof(file.tag) && http_is_value(tag, strlen(tag)))
                (void) snprintf(file.tag, sizeof(file.tag), "%s", tag);
        if (type && strcmp(type, "directory") == 0 && !remote->no_links)
                remote_file_ask(remote, "file.list", json_pack("{s:s}", "path", remote->path), remote_file_on_listed);
        else if (type && strcmp(type, "file") == 0)
                send_bytes(remote, &file);
        else {
                (void) err_set(&err, type && strcmp(type, "directory") == 0 ? ERR_USAGE : ERR_REFUSED,
                               "%.200s is not a regular file", remote->path);
                remote_file_refuse(remote, &err);
        }
}

static void remote_file_look(struct remote_file *remote, json_t *answer) {
        (void) answer;
        remote_file_ask(
                remote, "file.stat",
                json_pack("{s:s, s:b, s:b}", "path", remote->path, "follow", 1, "no_links", (int) remote->no_links),
                remote_file_on_looked);
}

void remote_file_read(struct api_request *api_request, struct session *session, const struct file_request *request) {
        struct remote_file *remote = remote_file_make(api_request, session, request);
        if (remote)
                remote_file_start(remote, session, remote_file_look);
}

/* ---- the rest ---- */

static void on_stat(struct remote_file *remote, json_t *answer) {
        api_request_answer(remote_file_end(remote), 200, json_incref(answer));
}

static void ask_stat(struct remote_file *remote, json_t *answer) {
        (void) answer;
        remote_file_ask(remote, "file.stat", json_pack("{s:s}", "path", remote->path), on_stat);
}

void remote_file_stat(struct api_request *api_request, struct session *session, const struct file_request *request) {
        struct remote_file *remote = remote_file_make(api_request, session, request);
        if (remote)
                remote_file_start(remote, session, ask_stat);
}

static void on_changed(struct remote_file *remote, json_t *answer) {
        json_t *result =
                json_pack("{s:o}", "path", remote_file_describe_path(remote->is_directory ? remote->path : remote->to));
        int status = remote->is_directory ? 201 : 200;
        (void) answer;
        api_request_answer(remote_file_end(remote), status, result);
}

static void ask_change(struct remote_file *remote, json_t *answer) {
        (void) answer;
        if (remote->is_directory)
                remote_file_ask(remote, "file.mkdir", json_pack("{s:s}", "path", remote->path), on_changed);
        else
                remote_file_ask(remote, "file.move", json_pack("{s:s, s:s}", "path", remote->path, "to", remote->to),
                                on_changed);
}

void remote_file_change(struct api_request *api_request, struct session *session, const struct file_request *request,
                        bool is_directory) {
        struct remote_file *remote = remote_file_make(api_request, session, request);
        if (!remote)
                return;
        remote->is_directory = is_directory;
        caller_begin(&api_request->caller, is_directory ? "file.mkdir" : "file.move", request->session);
        remote_file_start(remote, session, ask_change);
}

/* Adds its URL at this service to each. */
static void on_artifacts(struct remote_file *remote, json_t *answer) {
        struct api_request *api_request = remote->api_request;
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
        api_request_answer(remote_file_end(remote), 200, json_incref(answer));
}

static void ask_artifacts(struct remote_file *remote, json_t *answer) {
        (void) answer;
        remote_file_ask(remote, "artifact.list", json_object(), on_artifacts);
}

void remote_file_list_artifacts(struct api_request *api_request, struct session *session) {
        const struct file_request request = { .path = "." };
        struct remote_file *remote = remote_file_make(api_request, session, &request);
        if (remote)
                remote_file_start(remote, session, ask_artifacts);
}
