#include "daemon/socket_request.h"

#include <string.h>

#include "base/memory.h"
#include "daemon/operation.h"
#include "daemon/remote.h"
#include "daemon/remote_move.h"
#include "session/caller.h"
#include "session/manager.h"
#include "session/serve_options.h"
#include "session/session_config_check.h"

static const char *get_text(json_t *json, const char *key) {
        return json_string_value(json_object_get(json, key));
}

static bool socket_request_is_set(json_t *json, const char *key) {
        return json_is_true(json_object_get(json, key));
}

static const char *get_session(json_t *json) {
        return get_text(json, "session");
}

static uint64_t get_number(json_t *json, const char *key) {
        json_int_t number = json_integer_value(json_object_get(json, key));
        return number > 0 ? (uint64_t) number : 0;
}

/* ---- runs ---- */

static int request_command(struct caller *caller, json_t *json, struct err *err) {
        struct run_request request;
        if (run_request_read_json(json, &request, err) < 0)
                return -1;
        request.options = json;
        return operation_command(caller, &request, err);
}

static int request_install(struct caller *caller, json_t *json, struct err *err) {
        const struct install_request request = { .session = get_session(json),
                                                 .options = json,
                                                 .packages = json_object_get(json, "packages"),
                                                 .timeout_ms = get_number(json, "timeout_ms"),
                                                 .stream = socket_request_is_set(json, "stream"),
                                                 .cancel_on_disconnect =
                                                         socket_request_is_set(json, "cancel_on_disconnect") };
        return operation_install(caller, &request, err);
}

static int request_program(struct caller *caller, json_t *json, struct err *err) {
        const struct program_request request = { .options = json,
                                                 .is_light = socket_request_is_set(json, "light"),
                                                 .wants_listener = socket_request_is_set(json, "listener"),
                                                 .what = get_text(json, "what") };
        return operation_program(caller, &request, err);
}

static int request_program_usage(struct caller *caller, json_t *json, struct err *err) {
        return operation_program_usage(caller, get_text(json, "id"), err);
}

static struct run_reference get_reference(json_t *json) {
        return (struct run_reference) { get_session(json), get_text(json, "run"), get_number(json, "from") };
}

static int request_run_read(struct caller *caller, json_t *json, struct err *err) {
        const struct run_reference reference = get_reference(json);
        return operation_run_read(caller, &reference, err);
}

static int request_run_show(struct caller *caller, json_t *json, struct err *err) {
        const struct run_reference reference = get_reference(json);
        return operation_run_show(caller, &reference, err);
}

static int request_run_cancel(struct caller *caller, json_t *json, struct err *err) {
        const struct run_reference reference = get_reference(json);
        return operation_run_cancel(caller, &reference, err);
}

/* ---- sessions ---- */

/* Only the operator sees its paths and process ids on the host. */
static json_t *info_to_json(const struct caller *caller, const struct session_info *info, bool is_brief) {
        const struct session_info_form form = { .is_brief = is_brief, .hides_host = !caller_is_operator(caller) };
        return session_info_to_json(info, &form);
}

static int request_session_create(struct caller *caller, json_t *json, struct err *err) {
        static const char *const own[] = { "op", "session", "operator", "provisional", NULL };
        struct session_created created;
        if (session_config_check_options(json, "session.create", own, err) < 0 ||
            operation_session_create(caller, get_session(json), json, &created, err) < 0)
                return -1;
        struct session *remote = remote_find(caller, get_session(json));
        if (remote) {
                json_decref(created.unchanged);
                return remote_create(caller, remote, created.is_new, err);
        }
        json_t *answer = info_to_json(caller, &created.info, false);
        json_object_set_new(answer, "created", json_boolean(created.is_new));
        if (created.unchanged)
                json_object_set_new(answer, "unchanged", created.unchanged);
        caller_answer(caller, answer);
        return 0;
}

struct listing {
        const struct caller *caller;
        json_t *sessions;
};

static void add_to_list(void *context, const struct session_info *info) {
        const struct listing *listing = context;
        (void) json_array_append_new(listing->sessions, info_to_json(listing->caller, info, true));
}

static int request_session_list(struct caller *caller, json_t *json, struct err *err) {
        struct listing listing = { caller, json_array() };
        (void) json;
        (void) err;
        operation_session_list(caller, add_to_list, &listing);
        caller_answer(caller, json_pack("{s:o}", "sessions", listing.sessions));
        return 0;
}

static int request_session_show(struct caller *caller, json_t *json, struct err *err) {
        struct session_details details;
        if (operation_session_show(caller, get_session(json), &details, err) < 0)
                return -1;
        json_t *answer = info_to_json(caller, &details.info, false);
        json_object_set_new(answer, "runs", details.runs);
        json_object_set_new(answer, "isolation", details.isolation);
        caller_answer(caller, answer);
        return 0;
}

static int request_session_log(struct caller *caller, json_t *json, struct err *err) {
        return operation_session_log(caller, get_session(json), get_number(json, "limit"), err);
}

static int request_session_remove(struct caller *caller, json_t *json, struct err *err) {
        return operation_session_remove(caller, get_session(json), socket_request_is_set(json, "keep_files"), err);
}

static int request_session_interrupt(struct caller *caller, json_t *json, struct err *err) {
        return operation_session_interrupt(caller, get_session(json), err);
}

static int request_session_restart(struct caller *caller, json_t *json, struct err *err) {
        return operation_session_restart(caller, get_session(json), err);
}

static int request_session_hibernate(struct caller *caller, json_t *json, struct err *err) {
        const char *depth = get_text(json, "depth");
        return operation_session_hibernate(caller, get_session(json), depth && strcmp(depth, "trim") == 0, err);
}

static int request_session_move(struct caller *caller, json_t *json, struct err *err) {
        static const char *const known[] = { "op", "session", "engine", "isolation", "image", NULL };
        struct session_info info;
        if (session_config_check_members(json, "session.move", known, err) < 0)
                return -1;
        if (remote_move_is_meant(caller, get_session(json), json))
                return remote_move(caller, get_session(json), json, err);
        if (operation_session_move(caller, get_session(json), json, &info, err) < 0)
                return -1;
        caller_answer(caller, info_to_json(caller, &info, false));
        return 0;
}

static int request_session_adopt(struct caller *caller, json_t *json, struct err *err) {
        struct session_info info;
        if (operation_session_adopt(caller, get_session(json), &info, err) < 0)
                return -1;
        caller_answer(caller, info_to_json(caller, &info, false));
        return 0;
}

static int request_session_set(struct caller *caller, json_t *json, struct err *err) {
        struct session_info info;
        if (operation_session_set(caller, get_session(json), json_object_get(json, "limits"), &info, err) < 0)
                return -1;
        caller_answer(caller, info_to_json(caller, &info, false));
        return 0;
}

/* ---- files ---- */

struct file_request socket_request_file(json_t *json) {
        return (struct file_request) { .session = get_session(json),
                                       .path = get_text(json, "path"),
                                       .to = get_text(json, "to"),
                                       .recursive = socket_request_is_set(json, "recursive"),
                                       .no_links = socket_request_is_set(json, "no_links"),
                                       .follows = socket_request_is_set(json, "follow"),
                                       .is_input = socket_request_is_set(json, "input") };
}

static void write_file_list(json_t *entries, bool is_cut, const char *path, struct json_writer *text) {
        (void) path;
        json_writer_put_literal(text, "{\"entries\":");
        json_writer_put_value(text, entries);
        json_writer_put_literal(text, ",\"cut\":");
        json_writer_put_bool(text, is_cut);
        json_writer_put_literal(text, "}");
}

static int request_file_list(struct caller *caller, json_t *json, struct err *err) {
        const struct file_request request = socket_request_file(json);
        return operation_file_list(caller, &request, write_file_list, err);
}

static int request_file_stat(struct caller *caller, json_t *json, struct err *err) {
        const struct file_request request = socket_request_file(json);
        json_t *entry;
        if (operation_file_stat(caller, &request, &entry, err) < 0)
                return -1;
        caller_answer(caller, entry);
        return 0;
}

static int request_file_mkdir(struct caller *caller, json_t *json, struct err *err) {
        const struct file_request request = socket_request_file(json);
        char path[4096];
        if (operation_file_make_directory(caller, &request, path, err) < 0)
                return -1;
        caller_answer(caller, json_object());
        return 0;
}

static int request_file_move(struct caller *caller, json_t *json, struct err *err) {
        const struct file_request request = socket_request_file(json);
        char path[4096];
        if (operation_file_move(caller, &request, path, err) < 0)
                return -1;
        caller_answer(caller, json_object());
        return 0;
}

static int request_file_remove(struct caller *caller, json_t *json, struct err *err) {
        const struct file_request request = socket_request_file(json);
        return operation_file_remove(caller, &request, err);
}

static void write_artifacts(const struct artifact_list *list, const char *context, struct json_writer *text) {
        (void) context;
        json_writer_put_literal(text, "{\"artifacts\":");
        artifact_list_write_json(list, NULL, text);
        json_writer_put_literal(text, ",\"cut\":");
        json_writer_put_bool(text, list->cut);
        json_writer_put_literal(text, "}");
}

static int request_artifact_list(struct caller *caller, json_t *json, struct err *err) {
        return operation_artifact_list(caller, get_session(json), write_artifacts, "", true, err);
}

/* ---- the daemon ---- */

static int request_ps(struct caller *caller, json_t *json, struct err *err) {
        (void) json;
        return operation_ps(caller, err);
}

static int request_kill(struct caller *caller, json_t *json, struct err *err) {
        return operation_kill(caller, get_session(json), socket_request_is_set(json, "hard"), err);
}

static int request_ping(struct caller *caller, json_t *json, struct err *err) {
        (void) json;
        return operation_ping(caller, err);
}

static int request_status(struct caller *caller, json_t *json, struct err *err) {
        (void) json;
        return operation_status(caller, err);
}

static int request_shutdown(struct caller *caller, json_t *json, struct err *err) {
        const char *sessions = get_text(json, "sessions");
        return operation_shutdown(caller, sessions && strcmp(sessions, "end") == 0, err);
}

/* The most frequent ones first. */
static const struct socket_row rows[] = {
        { "execute", socket_request_execute },
        { "command", request_command },
        { "program", request_program },
        { "program.usage", request_program_usage },
        { "run.read", request_run_read },
        { "run.show", request_run_show },
        { "run.cancel", request_run_cancel },
        { "file.read", socket_request_read_file },
        { "file.write", socket_request_write_file },
        { "file.list", request_file_list },
        { "file.stat", request_file_stat },
        { "file.remove", request_file_remove },
        { "file.mkdir", request_file_mkdir },
        { "file.move", request_file_move },
        { "artifact.list", request_artifact_list },
        { "session.create", request_session_create },
        { "session.list", request_session_list },
        { "session.show", request_session_show },
        { "session.remove", request_session_remove },
        { "session.interrupt", request_session_interrupt },
        { "session.restart", request_session_restart },
        { "session.hibernate", request_session_hibernate },
        { "session.move", request_session_move },
        { "session.adopt", request_session_adopt },
        { "session.log", request_session_log },
        { "session.set", request_session_set },
        { "session.install", request_install },
        { "ping", request_ping },
        { "status", request_status },
        { "shutdown", request_shutdown },
        { "ps", request_ps },
        { "kill", request_kill },
        { NULL, NULL },
};

static const struct socket_row *find_row(const struct socket_row *table, const char *name) {
        for (; table && table->name; table++)
                if (strcmp(table->name, name) == 0)
                        return table;
        return NULL;
}

/* Operations that answer at once for a session of this host, and are passed on for one of the remote. */
static bool is_passed_on(const char *name) {
        static const char *const names[] = { "session.show", "session.set", "file.read",     "file.write", "file.list",
                                             "file.stat",    "file.mkdir",  "artifact.list", "file.move" };
        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (strcmp(names[i], name) == 0)
                        return true;
        return false;
}

int socket_request_carry_out(struct caller *caller, json_t *json, struct err *err) {
        const char *name = get_text(json, "op");
        if (!name)
                return err_set(err, ERR_USAGE, "\"op\" must be given, as text");
        const struct socket_row *row = find_row(rows, name);
        if (!row)
                row = find_row(caller->manager->options->front_rows, name);
        struct session *remote = row && is_passed_on(name) ? remote_find(caller, get_session(json)) : NULL;
        if (remote)
                return remote_pass(caller, remote, json, err);
        if (row)
                return row->carry_out(caller, json, err);
        return err_set(err, ERR_USAGE, "there is no operation \"%.60s\"; docs/PROTOCOL.md lists them", name);
}
