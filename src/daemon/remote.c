#include "daemon/remote.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "daemon/remote_request.h"
#include "session/caller.h"
#include "session/manager.h"
#include "session/remote_place.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_config.h"
#include "session/session_engine.h"

enum { CODE_INSIDE_MAX = 64 << 10 }; /* of a run: longer code follows its request */

/* The operations that may be passed on, and how. */
static const struct {
        const char *op;
        unsigned traits;
} rows[] = {
        { "session.create", REMOTE_AGAIN | REMOTE_SESSION },
        { "session.show", REMOTE_AGAIN | REMOTE_SESSION },
        { "session.set", REMOTE_AGAIN | REMOTE_SESSION },
        { "session.log", REMOTE_AGAIN },
        { "session.remove", REMOTE_AGAIN | REMOTE_REMOVAL },
        { "session.interrupt", REMOTE_AGAIN },
        { "session.hibernate", REMOTE_AGAIN },
        { "session.restart", 0 },
        { "session.install", 0 },
        { "run.read", REMOTE_AGAIN | REMOTE_RUN },
        { "run.show", REMOTE_AGAIN },
        { "run.cancel", REMOTE_AGAIN },
        { "file.list", REMOTE_AGAIN },
        { "file.stat", REMOTE_AGAIN },
        { "file.mkdir", REMOTE_AGAIN },
        { "file.move", 0 },
        { "file.remove", 0 },
        { "file.read", REMOTE_AGAIN | REMOTE_DOWNLOAD },
        { "file.write", REMOTE_UPLOAD },
        { "artifact.list", REMOTE_AGAIN },
        { "execute", REMOTE_AGAIN | REMOTE_RUN },
        { "command", REMOTE_AGAIN | REMOTE_RUN },
};

struct session *remote_find(const struct caller *caller, const char *name) {
        struct session *session = name ? session_find(caller->manager, caller->owner, name) : NULL;
        return session && session->is_remote ? session : NULL;
}

bool remote_is_wanted(const struct session_manager *manager, json_t *options) {
        struct session_engine engine;
        struct err ignored; /* whoever makes the session says it */
        if (session_engine_read(manager, options, &engine, &ignored) < 0)
                return false;
        return engine.is_instance || strcmp(engine.name, ENGINE_REMOTE) == 0;
}

void remote_name(const struct session *session, char ret_name[static REMOTE_NAME_MAX]) {
        (void) snprintf(ret_name, REMOTE_NAME_MAX, "%s-%s", session->manager->data_id, session->row.id);
}

json_t *remote_write_limits(const struct limits *limits) {
        return json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I}", "memory_bytes", (json_int_t) limits->memory_bytes,
                         "cpus", (double) limits->cpu_thousandths / 1000, "pids", (json_int_t) limits->pids,
                         "timeout_ms", (json_int_t) limits->timeout_ms, "tmp_bytes", (json_int_t) limits->tmp_bytes,
                         "disk_bytes", (json_int_t) limits->disk_bytes, "disk_files", (json_int_t) limits->disk_files);
}

/* The Glovebox in an instance does not have this daemon's defaults: the request names every limit. Its image is the
 * instance's. */
static void add_row(const struct registry_session *row, json_t *kept, json_t *request) {
        json_t *env = json_object_get(kept, "env");
        if (env && !json_object_get(request, "env"))
                (void) json_object_set(request, "env", env);
        (void) json_object_set_new(request, "limits", remote_write_limits(&row->limits));
        (void) json_object_set_new(request, "mode", json_string(row->mode));
}

/* The options with which the session was made: the remote makes it with the same ones. */
static void add_options(const struct session *session, json_t *request) {
        static const char *const kept_keys[] = { "env", "mounts", "data", "network" };
        json_t *kept = *session->row.options ? json_loads(session->row.options, 0, NULL) : NULL;
        if (json_is_true(json_object_get(kept, "instance"))) {
                add_row(&session->row, kept, request);
                json_decref(kept);
                return;
        }
        (void) json_object_update_missing(request, json_object_get(kept, "asked"));
        for (size_t i = 0; i < ELEMENTS(kept_keys); i++)
                if (json_object_get(kept, kept_keys[i]) && !json_object_get(request, kept_keys[i]))
                        (void) json_object_set(request, kept_keys[i], json_object_get(kept, kept_keys[i]));
        json_decref(kept);
}

static void add_session(const struct session *session, json_t *request) {
        char name[REMOTE_NAME_MAX];
        remote_name(session, name);
        (void) json_object_set_new(request, "session", json_string(name));
}

static int find_traits(const char *op, unsigned *ret_traits, struct err *err) {
        for (size_t i = 0; op && i < ELEMENTS(rows); i++)
                if (strcmp(rows[i].op, op) == 0) {
                        *ret_traits = rows[i].traits;
                        return 0;
                }
        return err_set(err, ERR_UNSUPPORTED, "\"%.60s\" is not passed on to a remote session", op ? op : "");
}

/* Options that cannot reach into an instance, or would have to change it. */
static int check_instance(const struct session *session, const char *op, struct err *err) {
        if (strcmp(op, "session.install") == 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "session %s is in an instance that has no network device, so nothing can be fetched: "
                               "use an image that has the packages",
                               session->row.name);
        if (strcmp(op, "session.set") == 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "the limits of session %s are those of its instance, which was made with them: make a "
                               "session with others",
                               session->row.name);
        return 0;
}

int remote_pass(struct caller *caller, struct session *session, json_t *request, struct err *err) {
        const char *op = json_string_value(json_object_get(request, "op"));
        struct remote_order order = { .caller = caller, .session = session };
        if (find_traits(op, &order.traits, err) < 0)
                return -1;
        if (remote_place_of(session).is_instance && check_instance(session, op, err) < 0)
                return -1;
        for (size_t i = 0; i < ELEMENTS(rows); i++) /* a text with the lifetime of the caller */
                if (strcmp(rows[i].op, op) == 0)
                        caller_begin(caller, rows[i].op, session->row.name);
        caller->stream = caller->stream || strcmp(op, "run.read") == 0;
        order.run_id = json_string_value(json_object_get(request, "run"));
        order.json = json_copy(request);
        add_session(session, order.json);
        if (strcmp(op, "session.install") == 0)
                add_options(session, order.json);
        int code = remote_request_begin(&order, err);
        json_decref(order.json);
        return code;
}

int remote_pass_new(struct caller *caller, struct session *session, const char *op, json_t *fields, struct err *err) {
        json_t *request = fields ? fields : json_object();
        int code = request && json_object_set_new(request, "op", json_string(op)) == 0
                           ? remote_pass(caller, session, request, err)
                           : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        json_decref(request);
        return code;
}

int remote_remove(struct caller *caller, struct session *session, bool keep_files, struct err *err) {
        if (!remote_place_of(session).is_instance)
                return remote_pass_new(caller, session, "session.remove",
                                       json_pack("{s:b}", "keep_files", (int) keep_files), err);
        if (keep_files)
                return err_set(err, ERR_UNSUPPORTED,
                               "the files of session %s are in its instance and go with it: read those that are to be "
                               "kept, then remove it",
                               session->row.name);
        session_remove(session, false);
        caller_answer(caller, json_object());
        return 0;
}

int remote_create(struct caller *caller, struct session *session, bool is_new, struct err *err) {
        struct remote_order order = { .caller = caller,
                                      .session = session,
                                      .json = json_pack("{s:s}", "op", "session.create"),
                                      .traits = REMOTE_AGAIN | REMOTE_SESSION,
                                      .is_new = is_new };
        add_session(session, order.json);
        add_options(session, order.json);
        int code = remote_request_begin(&order, err);
        json_decref(order.json);
        return code;
}

/* ---- runs ---- */

static void set_text(json_t *json, const char *key, const char *text) {
        if (text)
                (void) json_object_set_new(json, key, json_string(text));
}

static void set_value(json_t *json, const char *key, json_t *value) {
        if (value)
                (void) json_object_set(json, key, value);
}

static void set_flag(json_t *json, const char *key, bool is_set) {
        if (is_set)
                (void) json_object_set_new(json, key, json_true());
}

static json_t *write_run(const struct run_request *request) {
        json_t *json = json_pack("{s:s, s:b}", "op", request->code ? "execute" : "command", "acknowledge", 1);
        set_text(json, "context", request->context);
        set_text(json, "file", request->file);
        set_text(json, "shell", request->shell);
        set_text(json, "cwd", request->cwd);
        set_text(json, "stdin", request->stdin_path);
        set_text(json, "input", request->input);
        set_text(json, "stdin_text", request->stdin_text);
        set_value(json, "files", request->files);
        set_flag(json, "one_shot", request->is_one_shot);
        set_flag(json, "contents", request->wants_contents);
        set_value(json, "args", request->args);
        set_value(json, "argv", request->argv);
        set_value(json, "env", request->env);
        set_flag(json, "stream", request->stream);
        set_flag(json, "light", request->is_light);
        set_flag(json, "cancel_on_disconnect", request->cancel_on_disconnect);
        if (request->is_not_counted)
                (void) json_object_set_new(json, "store_history", json_false());
        if (request->timeout_ms)
                (void) json_object_set_new(json, "timeout_ms", json_integer((json_int_t) request->timeout_ms));
        if (request->code && request->code_size <= CODE_INSIDE_MAX)
                (void) json_object_set_new(json, "code", json_stringn(request->code, request->code_size));
        else
                set_flag(json, "code_follows", request->code != NULL);
        return json;
}

/* Adds the options of an ephemeral run, which no session stores. */
static void add_asked(json_t *options, json_t *json) {
        static const char *const keys[] = {
                "image", "mode", "limits", "env", "mounts", "data", "network", "isolation"
        };
        for (size_t i = 0; i < ELEMENTS(keys); i++)
                if (!json_object_get(json, keys[i]))
                        set_value(json, keys[i], json_object_get(options, keys[i]));
}

/* Where an ephemeral run takes place: at the remote, or in an instance of its own. */
static int place_run(const struct caller *caller, const struct run_request *request, const char *run_id, json_t *json,
                     struct remote_place *ret_place, struct err *err) {
        static struct registry_session row; /* large */
        struct session_engine engine;
        *ret_place = (struct remote_place) { .is_instance = false };
        if (session_engine_read(caller->manager, request->options, &engine, err) < 0)
                return -1;
        if (!engine.is_instance)
                return 0;
        if (request->detach)
                return err_set(err, ERR_UNSUPPORTED,
                               "an ephemeral run on engine %s ends with its instance, so it cannot be read later: name "
                               "a session, or wait for the run",
                               engine.name);
        if (session_config_from_json(caller, request->options, SESSION_CONFIG_LOOK_NOW, &row, err) < 0)
                return -1;
        json_t *kept = *row.options ? json_loads(row.options, 0, NULL) : NULL;
        add_row(&row, kept, json);
        json_decref(kept);
        *ret_place = remote_place_for_run(caller->manager, &row, run_id);
        return 0;
}

int remote_run(struct caller *caller, struct session *session, const struct run_request *request, bool is_new,
               struct err *err) {
        char run_id[33];
        if (request->run_id && strlen(request->run_id) == 32)
                (void) snprintf(run_id, sizeof(run_id), "%s", request->run_id);
        else if (run_make_id(run_id) < 0)
                return err_set(err, ERR_SYSTEM, "no random numbers");
        struct remote_order order = { .caller = caller,
                                      .session = session,
                                      .json = write_run(request),
                                      .traits = REMOTE_RUN | (session ? REMOTE_AGAIN : 0),
                                      .is_new = is_new,
                                      .detach = request->detach,
                                      .run_id = run_id };
        struct remote_place place;
        if (!session && place_run(caller, request, run_id, order.json, &place, err) < 0) {
                json_decref(order.json);
                return -1;
        }
        order.place = session ? NULL : &place;
        caller->stream = request->stream;
        caller->cancel_on_disconnect = request->cancel_on_disconnect;
        set_text(order.json, "run_id", run_id);
        if (session) {
                char hint[OPERATION_INSTALL_HINT_MAX]; /* the remote knows the session by another name */
                operation_install_hint(caller, session->row.name, hint);
                set_text(order.json, "install_hint", request->install_hint ? request->install_hint : hint);
                add_session(session, order.json);
                add_options(session, order.json);
        } else {
                set_flag(order.json, "ephemeral", true);
                if (!place.is_instance)
                        add_asked(request->options, order.json);
        }
        if (request->code && request->code_size > CODE_INSIDE_MAX) {
                order.code = request->code;
                order.code_size = request->code_size;
        }
        int code = remote_request_begin(&order, err);
        json_decref(order.json);
        return code;
}
