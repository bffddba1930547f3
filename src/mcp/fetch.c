#include "mcp/fetch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/json_bounds.h"
#include "daemon/remote.h"
#include "daemon/remote_ask.h"
#include "session/manager.h"
#include "session/session.h"
#include "session/session_config.h"
#include "store/workspace.h"

/* The steps of one call: makes the sandbox on the remote if necessary, then the file operation. */
struct fetch {
        struct mcp_call *call;
        struct remote_ask *ask; /* what is under way */
        char session_id[32];
        char path[4096];
        void (*next)(struct fetch *fetch, json_t *answer);
        json_t *arguments;
        ask_opened *opened;
        struct ask_file file;
        char *bytes; /* of a file that is written */
        size_t size;
        ask_written *written;
        struct err err;
};

static void mcp_fetch_on_done(void *context, const char *text, size_t size, const struct err *err);
static bool mcp_fetch_on_data(void *context, const char *bytes, size_t size);
static void mcp_fetch_on_room(void *context);
static const struct remote_ask_events events = { .data = mcp_fetch_on_data,
                                                 .room = mcp_fetch_on_room,
                                                 .done = mcp_fetch_on_done };

bool fetch_is_needed(const struct mcp_call *call, const char *name) {
        const struct session_manager *manager = call->peer->manager;
        const struct session *session = session_find(call->peer->manager, call->peer->owner, name);
        return session ? session->is_remote : remote_is_wanted(manager, (json_t *) (uintptr_t) call->peer->options);
}

/* ---- creation and end ---- */

static void fetch_free(struct fetch *fetch) {
        remote_ask_drop(fetch->ask);
        fd_close(&fetch->file.fd);
        json_decref(fetch->file.entries);
        json_decref(fetch->arguments);
        free(fetch->bytes);
        free(fetch);
}

static void on_leave(void *context) {
        fetch_free(context);
}

static void on_feed(void *context) {
        (void) context;
}

static const struct caller_source fetch_source = { .leave = on_leave, .feed = on_feed };

/* `err` NULL: it is there. */
static void fetch_end(struct fetch *fetch, const struct err *err) {
        struct mcp_call *call = fetch->call;
        remote_ask_drop(fetch->ask);
        fetch->ask = NULL;
        call->caller.source = NULL;
        call->is_asked = false;
        caller_done(&call->caller, err ? err_code_name(err->code) : "ok");
        if (fetch->opened)
                fetch->opened(call, fetch->arguments, err ? NULL : &fetch->file, err);
        else
                fetch->written(call, fetch->path, fetch->size, err);
        fetch_free(fetch);
}

static void fetch_ask(struct fetch *fetch, const char *op, json_t *fields,
                      void (*next)(struct fetch *fetch, json_t *answer)) {
        struct session *session = session_find(fetch->call->peer->manager, "", fetch->session_id);
        struct err err;
        fetch->next = next;
        if (session && session->is_remote) {
                if (remote_ask_begin(&fetch->call->caller, session, op, fields, &events, fetch, &fetch->ask, &err) < 0)
                        fetch_end(fetch, &err);
                return;
        }
        json_decref(fields);
        (void) err_set(&err, ERR_GONE, "the sandbox was closed or moved meanwhile; try again");
        fetch_end(fetch, &err);
}

static void mcp_fetch_on_done(void *context, const char *text, size_t size, const struct err *err) {
        struct fetch *fetch = context;
        struct err damaged;
        fetch->ask = NULL;
        json_t *answer =
                text && size <= FETCH_MAX && json_is_bounded(text, size) ? json_loadb(text, size, 0, NULL) : NULL;
        (void) err_set(&damaged, ERR_PROTOCOL, "the remote's answer is damaged, or too long");
        if (fetch->err.code != ERR_NONE)
                fetch_end(fetch, &fetch->err);
        else if (json_is_object(answer))
                fetch->next(fetch, answer);
        else
                fetch_end(fetch, text ? &damaged : err);
        json_decref(answer);
}

static struct fetch *fetch_make(struct mcp_call *call, const char *path) {
        struct fetch *fetch = calloc(1, sizeof(*fetch));
        if (!fetch)
                return NULL;
        fetch->call = call;
        fetch->file.fd = -1;
        (void) snprintf(fetch->path, sizeof(fetch->path), "%s", path);
        call->is_asked = true;
        call->caller.source = &fetch_source;
        call->caller.source_context = fetch;
        return fetch;
}

/* Finds the sandbox here, makes it if requested, and has it made on the remote. */
static void fetch_start(struct fetch *fetch, const struct file_request *request,
                        void (*next)(struct fetch *fetch, json_t *answer)) {
        struct mcp_call *call = fetch->call;
        struct err err = { 0 };
        bool is_created;
        struct session *session = request->creates ? session_config_find_or_create(&call->caller, request->session,
                                                                                   request->options, &is_created, &err)
                                                   : caller_find_session(&call->caller, request->session, &err);
        fetch->next = next;
        if (!session) {
                fetch_end(fetch, &err);
                return;
        }
        (void) snprintf(fetch->session_id, sizeof(fetch->session_id), "%s", session->row.id);
        int code = remote_ask_make(&call->caller, session, &events, fetch, &fetch->ask, &err);
        if (code > 0)
                next(fetch, NULL);
        else if (code < 0)
                fetch_end(fetch, &err);
}

/* ---- read ---- */

static bool mcp_fetch_on_data(void *context, const char *bytes, size_t size) {
        struct fetch *fetch = context;
        int code = fd_write_all(fetch->file.fd, bytes, size);
        if (code < 0 && fetch->err.code == ERR_NONE)
                (void) err_sys(&fetch->err, -code, "keeping the file");
        return true;
}

static void mcp_fetch_on_read(struct fetch *fetch, json_t *answer) {
        (void) answer;
        fetch_end(fetch, NULL);
}

static void mcp_fetch_on_listed(struct fetch *fetch, json_t *answer) {
        fetch->file.entries = json_incref(json_object_get(answer, "entries"));
        fetch->file.is_cut = json_is_true(json_object_get(answer, "cut"));
        fetch_end(fetch, NULL);
}

static void mcp_fetch_on_looked(struct fetch *fetch, json_t *answer) {
        const char *type = json_string_value(json_object_get(answer, "type"));
        json_int_t size = json_integer_value(json_object_get(answer, "size"));
        struct err err;
        if (type && strcmp(type, "directory") == 0) {
                fetch->file.status.st_mode = S_IFDIR;
                fetch_ask(fetch, "file.list", json_pack("{s:s}", "path", fetch->path), mcp_fetch_on_listed);
                return;
        }
        fetch->file.status.st_mode = S_IFREG;
        fetch->file.status.st_size = size > 0 ? size : 0;
        fetch->file.fd = memfd_create("glovebox-fetched", MFD_CLOEXEC);
        if (fetch->file.fd < 0) {
                (void) err_sys(&err, errno, "making room for the file");
                fetch_end(fetch, &err);
                return;
        }
        fetch_ask(fetch, "file.read",
                  json_pack("{s:s, s:I}", "path", fetch->path, "size",
                            (json_int_t) (size < FETCH_MAX ? size : FETCH_MAX)),
                  mcp_fetch_on_read);
}

static void fetch_look(struct fetch *fetch, json_t *answer) {
        (void) answer;
        fetch_ask(fetch, "file.stat", json_pack("{s:s, s:b}", "path", fetch->file.relative, "follow", 1),
                  mcp_fetch_on_looked);
}

void fetch_open(struct mcp_call *call, const char *name, const char *path, json_t *arguments, ask_opened *then) {
        struct file_request request;
        struct err err;
        char relative[4096];
        int code = ask_file_request(call, name, path, !call->is_resource, &request, &err);
        if (code == 0)
                code = path ? workspace_check_path(path, relative, &err)
                            : err_set(&err, ERR_USAGE, "\"path\" must be given, as text");
        struct fetch *fetch = code == 0 ? fetch_make(call, relative) : NULL;
        if (!fetch) {
                if (code == 0)
                        (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                then(call, arguments, NULL, &err);
                return;
        }
        (void) memcpy(fetch->file.relative, relative, sizeof(relative));
        fetch->arguments = json_incref(arguments);
        fetch->opened = then;
        fetch_start(fetch, &request, fetch_look);
}

/* ---- write ---- */

static void mcp_fetch_on_room(void *context) {
        (void) context; /* all of it was given at once: a message of MCP is smaller than what may wait */
}

static void on_written(struct fetch *fetch, json_t *answer) {
        (void) answer;
        fetch_end(fetch, NULL);
}

static void send_file(struct fetch *fetch, json_t *answer) {
        struct session *session = session_find(fetch->call->peer->manager, "", fetch->session_id);
        struct err err;
        (void) answer;
        fetch->next = on_written;
        int code =
                session && session->is_remote
                        ? remote_ask_begin(&fetch->call->caller, session, "file.write",
                                           json_pack("{s:s}", "path", fetch->path), &events, fetch, &fetch->ask, &err)
                        : err_set(&err, ERR_GONE, "the sandbox was closed or moved meanwhile; try again");
        if (code < 0 || remote_ask_send(fetch->ask, fetch->bytes, fetch->size, &err) < 0 ||
            remote_ask_send_end(fetch->ask, &err) < 0)
                fetch_end(fetch, &err);
}

void fetch_write(struct mcp_call *call, const char *name, const char *path, const struct ask_bytes *content,
                 ask_written *then) {
        struct file_request request;
        struct err err;
        int code = ask_file_request(call, name, path, true, &request, &err);
        struct fetch *fetch = code == 0 && path ? fetch_make(call, path) : NULL;
        if (fetch && !(fetch->bytes = malloc(content->size + 1))) {
                call->is_asked = false;
                call->caller.source = NULL;
                fetch_free(fetch);
                fetch = NULL;
        }
        if (!fetch) {
                if (code == 0)
                        (void) err_set(&err, path ? ERR_SYSTEM : ERR_USAGE, "%s",
                                       path ? ERR_DAEMON_MEMORY : "\"path\" must be given, as text");
                then(call, path, 0, &err);
                return;
        }
        memcpy(fetch->bytes, content->bytes, content->size);
        fetch->size = content->size;
        fetch->written = then;
        caller_begin(&call->caller, "file.write", name);
        fetch_start(fetch, &request, send_file);
}
