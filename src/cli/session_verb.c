/* `glovebox session ...`: the sessions that the daemon keeps. */
#include "cli/session_verb.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/box_rows.h"
#include "cli/process_verb.h"
#include "cli/remote_run.h"
#include "cli/session_print.h"
#include "cli/session_request.h"
#include "cli/ui/json_print.h"
#include "cli/ui/suggest.h"
#include "cli/ui/terminal.h"

/* What the parts but `new` are told. */
struct line {
        struct socket_choice where;
        bool json, names, trim, keep_files, all;
        const char *key; /* of the service, whose sandboxes are meant */
        const char *run;
        const char *engine, *image; /* where `move` moves to */
        uint64_t limit, timeout_ms;
        struct limits limits; /* what `set` changes; 0: as it is */
};

enum { MOVE_TRIES = 100, MOVE_PAUSE_MS = 50 };

#define FIELD(field) offsetof(struct line, field)
#define JSON_ROW                                                                                                       \
        { .name = "json", .kind = OPTION_FLAG, .offset = FIELD(json), .group = "Options", .help = "print JSON" }
#define TABLE(array) { .rows = (array), .n_rows = ELEMENTS(array), .operands_anywhere = true }

static const struct option_row plain_rows[] = { JSON_ROW, SOCKET_ROWS(FIELD(where)) };
static const struct option_row ls_rows[] = {
        JSON_ROW,
        { .name = "names",
          .kind = OPTION_FLAG,
          .offset = FIELD(names),
          .group = "Options",
          .help = "print names only, one per line" },
        SOCKET_ROWS(FIELD(where)),
};
static const struct option_row rm_rows[] = {
        JSON_ROW,
        { .name = "key",
          .kind = OPTION_TEXT,
          .offset = FIELD(key),
          .argument = "KEY",
          .group = "Options",
          .help = "remove all sandboxes of this API key" },
        { .name = "keep-files",
          .kind = OPTION_FLAG,
          .offset = FIELD(keep_files),
          .group = "Options",
          .help = "leave the session's directory on the disk" },
        SOCKET_ROWS(FIELD(where)),
};
static const struct option_row hibernate_rows[] = {
        JSON_ROW,
        { .name = "all",
          .kind = OPTION_FLAG,
          .offset = FIELD(all),
          .group = "Options",
          .help = "all sessions of all keys; those with an active run are skipped and listed" },
        { .name = "trim",
          .kind = OPTION_FLAG,
          .offset = FIELD(trim),
          .group = "Options",
          .help = "only write large tables and arrays to disk; the interpreter stays" },
        SOCKET_ROWS(FIELD(where)),
};
static const struct option_row log_rows[] = {
        JSON_ROW,
        { .name = "run",
          .kind = OPTION_TEXT,
          .offset = FIELD(run),
          .argument = "ID",
          .group = "Options",
          .help = "print the output of this run, and follow it if it is active" },
        { .name = "limit",
          .kind = OPTION_COUNT,
          .offset = FIELD(limit),
          .argument = "NUMBER",
          .group = "Options",
          .min = 1,
          .max = 1000,
          .standard = "20",
          .help = "the number of runs to list, newest first" },
        SOCKET_ROWS(FIELD(where)),
};

static const struct option_row install_rows[] = {
        JSON_ROW,
        { .name = "timeout",
          .kind = OPTION_DURATION,
          .offset = FIELD(timeout_ms),
          .argument = "TIME",
          .group = "Options",
          .min = 1000,
          .max = 86400000,
          .standard = "5m",
          .help = "end the install after this time, for example 90s or 10m" },
        SOCKET_ROWS(FIELD(where)),
};

static const struct option_row move_rows[] = {
        JSON_ROW,
        { .name = "engine",
          .kind = OPTION_TEXT,
          .offset = FIELD(engine),
          .argument = "NAME",
          .group = "Options",
          .help = "what makes its boxes from now on: native, docker or podman" },
        { .name = "image",
          .kind = OPTION_TEXT,
          .offset = FIELD(image),
          .argument = "NAME",
          .group = "Options",
          .help = "the image there; without it the one that the daemon has for sessions that name none" },
        SOCKET_ROWS(FIELD(where)),
};

static const struct option_row set_rows[] = {
        JSON_ROW,
        { .name = "memory",
          .letter = 'm',
          .kind = OPTION_BYTES,
          .offset = FIELD(limits.memory_bytes),
          .argument = "SIZE",
          .group = "Limits",
          .min = 8 * MIB,
          .max = 1ull << 40,
          .help = "memory of all its processes together" },
        { .name = "cpus",
          .kind = OPTION_THOUSANDTHS,
          .offset = FIELD(limits.cpu_thousandths),
          .argument = "NUMBER",
          .group = "Limits",
          .min = 10,
          .max = 1024000,
          .help = "processors; 0.5 is half of one" },
        { .name = "pids",
          .kind = OPTION_COUNT,
          .offset = FIELD(limits.pids),
          .argument = "NUMBER",
          .group = "Limits",
          .min = 1,
          .max = 32768,
          .help = "processes and threads" },
        { .name = "timeout",
          .letter = 't',
          .kind = OPTION_DURATION,
          .offset = FIELD(limits.timeout_ms),
          .argument = "TIME",
          .group = "Limits",
          .min = 1,
          .max = 7ull * 86400 * 1000,
          .help = "time limit of each run, from the next one on" },
        { .name = "disk",
          .kind = OPTION_BYTES,
          .offset = FIELD(limits.disk_bytes),
          .argument = "SIZE",
          .group = "Limits",
          .min = 1 * MIB,
          .max = 1ull << 40,
          .help = "size of its workspace; the limit of a single file changes with its next interpreter" },
        SOCKET_ROWS(FIELD(where)),
};

const struct verb_part session_parts[SESSION_PARTS] = {
        { .name = "ls", .operands = "", .summary = "list the sessions", .options = TABLE(ls_rows) },
        { .name = "show",
          .operands = "NAME",
          .summary = "show a session, its limits, isolation and last runs",
          .options = TABLE(plain_rows),
          .completion = COMPLETE_SESSIONS },
        { .name = "new",
          .operands = "NAME",
          .summary = "create a session; an existing one is not changed",
          .options = { .rows = session_new_rows, .n_rows = SESSION_NEW_ROWS, .operands_anywhere = true } },
        { .name = "rm",
          .operands = "NAME...|--key KEY",
          .summary = "end sessions and delete their files",
          .options = TABLE(rm_rows),
          .completion = COMPLETE_SESSIONS },
        { .name = "interrupt",
          .operands = "NAME",
          .summary = "interrupt the current run; variables stay",
          .options = TABLE(plain_rows),
          .completion = COMPLETE_SESSIONS },
        { .name = "restart",
          .operands = "NAME",
          .summary = "start a new interpreter; variables are lost, files stay",
          .options = TABLE(plain_rows),
          .completion = COMPLETE_SESSIONS },
        { .name = "hibernate",
          .operands = "NAME|--all",
          .summary = "write its variables to disk and free its memory; the next call restores them",
          .options = TABLE(hibernate_rows),
          .completion = COMPLETE_SESSIONS },
        { .name = "log",
          .operands = "NAME",
          .summary = "list its runs; with --run, print the output of one",
          .options = TABLE(log_rows),
          .completion = COMPLETE_SESSIONS },
        { .name = "install",
          .operands = "NAME PACKAGE...",
          .summary = "install Python packages into one session, from the index of the host's pip",
          .options = TABLE(install_rows),
          .completion = COMPLETE_SESSIONS },
        { .name = "set",
          .operands = "NAME",
          .summary = "change the limits of a live session; variables stay",
          .options = TABLE(set_rows),
          .completion = COMPLETE_SESSIONS },
        { .name = "move",
          .operands = "NAME",
          .summary = "to another engine; variables and files come along",
          .options = TABLE(move_rows),
          .completion = COMPLETE_SESSIONS },
};

/* ---- what each does ---- */

static int print_created(const json_t *answer) {
        const char *name = json_string_value(json_object_get(answer, "name"));
        (void) printf("session %s %s\n", name ? name : "",
                      json_is_false(json_object_get(answer, "created")) ? "is there already" : "is made");
        return 0;
}

static int do_new(const struct session_options *options, char **names, struct err *err) {
        struct socket_place place;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        json_t *body = json_pack("{s:s, s:s}", "op", "session.create", "session", names[0]), *answer = NULL;
        const struct daemon_request request = { .body = body };
        int code = body ? 0 : err_set(err, ERR_USAGE, "the session's name is not valid UTF-8");
        if (code == 0)
                code = run_options_check(&options->run, err);
        if (code == 0)
                code = session_request_put(options, body, err);
        if (code == 0)
                code = socket_place_choose(&options->run.where, true, &place, err);
        if (code == 0)
                code = daemon_client_open(&place, DAEMON_START, &client, err);
        if (code == 0)
                code = daemon_client_call(&client, &request, &answer, err);
        if (code == 0)
                code = options->run.request.json ? json_print_answer(answer, err) : print_created(answer);
        if (code == 0 && !options->run.request.json)
                session_request_warn(names[0], answer);
        json_decref(answer);
        json_decref(body);
        return code;
}

static int do_ls(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        (void) names;
        json_t *answer = NULL;
        if (daemon_client_ask(client, "session.list", NULL, &answer, err) < 0)
                return -1;
        const json_t *sessions = json_object_get(answer, "sessions");
        int code = 0;
        if (line->json)
                code = json_print_answer(answer, err);
        else if (line->names)
                session_print_names(sessions);
        else
                session_print_list(sessions);
        json_decref(answer);
        return code;
}

static int do_show(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        json_t *answer = NULL;
        if (daemon_client_ask(client, "session.show", names[0], &answer, err) < 0)
                return -1;
        int code = 0;
        if (line->json)
                code = json_print_answer(answer, err);
        else
                session_print_one(answer);
        json_decref(answer);
        return code;
}

/* The names of sessions, as the operator says them; an array of texts. With a key, only that key's. */
static int list_names(struct daemon_client *client, const char *key, bool awake_only, json_t **ret_names,
                      struct err *err) {
        json_t *answer = NULL, *session;
        size_t i;
        if (daemon_client_ask(client, "session.list", NULL, &answer, err) < 0)
                return -1;
        *ret_names = json_array();
        json_array_foreach (json_object_get(answer, "sessions"), i, session) {
                const char *name = json_string_value(json_object_get(session, "name"));
                const char *owner = json_string_value(json_object_get(session, "key"));
                json_int_t pid = json_integer_value(json_object_get(session, "pid"));
                char text[140];
                if (!name || (key && (!owner || strcmp(owner, key) != 0)) || (awake_only && pid <= 0))
                        continue;
                (void) snprintf(text, sizeof(text), "%s%s%s", owner ? owner : "", owner ? "/" : "", name);
                (void) json_array_append_new(*ret_names, json_string(text));
        }
        json_decref(answer);
        return 0;
}

/* Every name is tried; the first that failed is the error. */
static int remove_named(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        int result = 0;
        for (; *names; names++) {
                json_t *body = json_pack("{s:s, s:s, s:b}", "op", "session.remove", "session", *names, "keep_files",
                                         line->keep_files),
                       *answer = NULL;
                const struct daemon_request request = { .body = body };
                struct err why = { 0 };
                int code = body ? daemon_client_call(client, &request, &answer, &why)
                                : err_set(&why, ERR_USAGE, "a session's name is not valid UTF-8");
                if (code < 0 && result == 0)
                        *err = why;
                if (code == 0 && line->json)
                        code = json_print_answer(answer, err);
                result = code < 0 ? -1 : result;
                json_decref(answer);
                json_decref(body);
        }
        return result;
}

static int remove_of_key(struct daemon_client *client, const struct line *line, struct err *err) {
        json_t *names = NULL, *name;
        size_t i;
        int code = list_names(client, line->key, false, &names, err);
        json_array_foreach (names, i, name) {
                char text[140], *one[] = { text, NULL };
                (void) snprintf(text, sizeof(text), "%s", json_string_value(name));
                if (code == 0)
                        code = remove_named(client, line, one, err);
        }
        if (code == 0 && !line->json)
                (void) printf("%zu sandboxes of %s are removed\n", json_array_size(names), line->key);
        json_decref(names);
        return code;
}

static int do_rm(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        if (line->key && names[0])
                return err_set(err, ERR_USAGE, "session rm takes names or --key, not both");
        if (!line->key && !names[0])
                return err_set(err, ERR_USAGE, "session rm needs a session's name; \"glovebox session ls\" lists them");
        return line->key ? remove_of_key(client, line, err) : remove_named(client, line, names, err);
}

static int do_interrupt(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        json_t *answer = NULL;
        if (daemon_client_ask(client, "session.interrupt", names[0], &answer, err) < 0)
                return -1;
        int code = 0;
        bool interrupted = json_is_true(json_object_get(answer, "interrupted"));
        if (line->json)
                code = json_print_answer(answer, err);
        else
                (void) puts(interrupted ? "interrupted" : "nothing was running");
        json_decref(answer);
        return code;
}

static int do_restart(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        json_t *answer = NULL;
        if (daemon_client_ask(client, "session.restart", names[0], &answer, err) < 0)
                return -1;
        int code = line->json ? json_print_answer(answer, err) : 0;
        json_decref(answer);
        return code;
}

/* Written by the box. */
static const char *harmless(const char *text, char room[static 400]) {
        (void) snprintf(room, 400, "%s", text ? text : "");
        terminal_make_harmless(room);
        return room;
}

static void print_hibernated(const json_t *answer) {
        const char *state = json_string_value(json_object_get(answer, "state"));
        json_int_t bytes = json_integer_value(json_object_get(answer, "bytes"));
        char text[32], name[400], why[400];
        (void) printf("%s, %s on the disk\n", state ? state : "done",
                      units_format_bytes(bytes > 0 ? (uint64_t) bytes : 0, text));
        const json_t *held_back = json_object_get(answer, "held_back"), *lost = json_object_get(answer, "not_carried");
        for (size_t i = 0; i < json_array_size(held_back); i++) {
                const json_t *held = json_array_get(held_back, i);
                (void) printf("held awake by %s: %s\n",
                              harmless(json_string_value(json_object_get(held, "name")), name),
                              harmless(json_string_value(json_object_get(held, "why")), why));
        }
        for (size_t i = 0; i < json_array_size(lost); i++)
                (void) printf("not carried: %s\n", harmless(json_string_value(json_array_get(lost, i)), why));
}

static int hibernate_one(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        json_t *body = json_pack("{s:s, s:s, s:s}", "op", "session.hibernate", "session", names[0], "depth",
                                 line->trim ? "trim" : "sleep"),
               *answer = NULL;
        const struct daemon_request request = { .body = body };
        int code = body ? daemon_client_call(client, &request, &answer, err)
                        : err_set(err, ERR_USAGE, "the session's name is not valid UTF-8");
        if (code == 0 && line->json)
                code = json_print_answer(answer, err);
        else if (code == 0)
                print_hibernated(answer);
        json_decref(answer);
        json_decref(body);
        return code;
}

/* Sessions with an active run are listed, and are no failure: interrupt them first to hibernate them. */
static int hibernate_all(struct daemon_client *client, const struct line *line, struct err *err) {
        json_t *names = NULL, *name;
        size_t i;
        int code = list_names(client, NULL, true, &names, err);
        json_array_foreach (names, i, name) {
                char text[140], *one[] = { text, NULL };
                struct err why = { 0 };
                (void) snprintf(text, sizeof(text), "%s", json_string_value(name));
                if (!line->json) {
                        (void) printf("%s: ", text);
                        (void) fflush(stdout);
                }
                if (code == 0 && hibernate_one(client, line, one, &why) < 0) {
                        if (!line->json)
                                (void) printf("%s\n", why.message);
                        if (why.code != ERR_BUSY && why.code != ERR_GONE) {
                                *err = why;
                                code = -1;
                        }
                }
        }
        json_decref(names);
        return code;
}

static int do_hibernate(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        if (line->all && names[0])
                return err_set(err, ERR_USAGE, "session hibernate takes a name or --all, not both");
        if (!line->all && !names[0])
                return err_set(err, ERR_USAGE, "session hibernate needs a session's name, or --all");
        return line->all ? hibernate_all(client, line, err) : hibernate_one(client, line, names, err);
}

/* Its box ends a moment after it said that it sleeps. */
static int ask_to_move(struct daemon_client *client, json_t *body, json_t **ret_answer, struct err *err) {
        const struct daemon_request request = { .body = body };
        for (int i = 0;; i++) {
                if (daemon_client_call(client, &request, ret_answer, err) == 0)
                        return 0;
                if (err->code != ERR_BUSY || i == MOVE_TRIES)
                        return -1;
                (void) poll(NULL, 0, MOVE_PAUSE_MS);
        }
}

/* What cannot sleep cannot come along: it is named, and the session stays where it is. */
static int put_to_sleep(struct daemon_client *client, const char *name, struct err *err) {
        json_t *body = json_pack("{s:s, s:s}", "op", "session.hibernate", "session", name), *answer = NULL;
        const struct daemon_request request = { .body = body };
        int code = daemon_client_call(client, &request, &answer, err);
        const char *state = json_string_value(json_object_get(answer, "state"));
        if (code < 0 && err->code == ERR_BUSY && strstr(err->message, "no kernel"))
                code = 0;
        else if (code == 0 && state && strcmp(state, "asleep") != 0) {
                char which[400];
                const json_t *held = json_array_get(json_object_get(answer, "held_back"), 0);
                code = err_set(err, ERR_REFUSED,
                               "session %s stays where it is: \"%s\" cannot come along; delete it, or "
                               "restart the session",
                               name, harmless(json_string_value(json_object_get(held, "name")), which));
        }
        json_decref(answer);
        json_decref(body);
        return code;
}

static int do_move(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        if (!line->engine)
                return err_set(err, ERR_USAGE, "session move needs --engine NAME");
        json_t *body = json_pack("{s:s, s:s, s:s, s:s*}", "op", "session.move", "session", names[0], "engine",
                                 line->engine, "image", line->image),
               *answer = NULL;
        int code = body ? put_to_sleep(client, names[0], err) : err_set(err, ERR_USAGE, "a name is not valid UTF-8");
        if (code == 0)
                code = ask_to_move(client, body, &answer, err);
        if (code == 0 && line->json)
                code = json_print_answer(answer, err);
        else if (code == 0)
                (void) printf("session %s is on %s\n", names[0], line->engine);
        json_decref(answer);
        json_decref(body);
        return code;
}

static int do_log(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        if (line->run)
                return process_follow_run(client, names[0], line->run, line->json, err);
        json_t *body = json_pack("{s:s, s:s, s:I}", "op", "session.log", "session", names[0], "limit",
                                 (json_int_t) line->limit),
               *answer = NULL;
        const struct daemon_request request = { .body = body };
        int code = body ? daemon_client_call(client, &request, &answer, err)
                        : err_set(err, ERR_USAGE, "the session's name is not valid UTF-8");
        if (code == 0 && line->json)
                code = json_print_answer(answer, err);
        else if (code == 0)
                session_print_runs(json_object_get(answer, "runs"));
        json_decref(answer);
        json_decref(body);
        return code;
}

static void print_installed(const json_t *result) {
        const json_t *installed = json_object_get(result, "installed");
        const json_t *stale = json_object_get(result, "restart_needed");
        for (size_t i = 0; i < json_array_size(stale); i++)
                (void) fprintf(stderr,
                               "glovebox: %s is imported in another version; \"glovebox session restart\" "
                               "makes the new one visible\n",
                               json_string_value(json_array_get(stale, i)));
        if (json_array_size(installed) == 0 && remote_run_exit_status(result) == 0)
                (void) fprintf(stderr, "glovebox: everything is there already\n");
}

/* A misspelt name is an error here, not a new session. */
static int check_exists(struct daemon_client *client, const char *name, struct err *err) {
        json_t *answer = NULL;
        int code = daemon_client_ask(client, "session.show", name, &answer, err);
        json_decref(answer);
        return code;
}

/* Hanging up, by Ctrl-C for instance, ends the install; the packages are then as they were. */
static int do_install(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        if (check_exists(client, names[0], err) < 0)
                return -1;
        json_t *body = json_pack("{s:s, s:s, s:b, s:b}", "op", "session.install", "session", names[0], "stream",
                                 !line->json, "cancel_on_disconnect", 1),
               *packages = json_array(), *result = NULL;
        int code = body ? 0 : err_set(err, ERR_USAGE, "the session's name is not valid UTF-8");
        for (char **name = names + 1; code == 0 && *name; name++)
                if (json_array_append_new(packages, json_string(*name)) < 0)
                        code = err_set(err, ERR_USAGE, "the name of a package is not valid UTF-8");
        struct daemon_request request = { .body = body };
        struct remote_run remote = { .client = client, .json = line->json };
        (void) json_object_set_new(body, "packages", packages);
        if (line->timeout_ms)
                (void) json_object_set_new(body, "timeout_ms", json_integer((json_int_t) line->timeout_ms));
        if (code == 0)
                code = remote_run_call(&remote, &request, &result, err);
        if (code == DAEMON_CALL_LEFT)
                code = remote_run_leave(&remote);
        else if (code == DAEMON_CALL_ANSWERED) {
                code = remote_run_report(&remote, result, err);
                if (!line->json)
                        print_installed(result);
        }
        json_decref(result);
        json_decref(body);
        return code;
}

static int do_set(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        const struct limits *limits = &line->limits;
        json_t *body = json_pack("{s:s, s:s}", "op", "session.set", "session", names[0]), *answer = NULL;
        json_t *wanted = json_object();
        const struct {
                const char *key;
                uint64_t value;
        } numbers[] = { { "memory_bytes", limits->memory_bytes },
                        { "pids", limits->pids },
                        { "timeout_ms", limits->timeout_ms },
                        { "disk_bytes", limits->disk_bytes } };
        for (size_t i = 0; i < ELEMENTS(numbers); i++)
                if (numbers[i].value)
                        (void) json_object_set_new(wanted, numbers[i].key, json_integer((json_int_t) numbers[i].value));
        if (limits->cpu_thousandths)
                (void) json_object_set_new(wanted, "cpus", json_real((double) limits->cpu_thousandths / 1000));
        bool says_something = json_object_size(wanted) > 0;
        (void) json_object_set_new(body, "limits", wanted);
        const struct daemon_request request = { .body = body };
        int code = !body             ? err_set(err, ERR_USAGE, "the session's name is not valid UTF-8")
                   : !says_something ? err_set(err, ERR_USAGE,
                                               "session set: say what is to change, for example "
                                               "--memory 2g; --cpus, --pids, --timeout and --disk can change too")
                                     : daemon_client_call(client, &request, &answer, err);
        if (code == 0 && line->json)
                code = json_print_answer(answer, err);
        json_decref(answer);
        json_decref(body);
        return code;
}

int session_install(struct daemon_client *client, const char *session, char **packages, bool json, struct err *err) {
        const struct line line = { .json = json };
        char *names[256] = { (char *) (uintptr_t) session };
        for (size_t i = 0; i + 2 < ELEMENTS(names) && packages[i]; i++)
                names[i + 1] = packages[i];
        return do_install(client, &line, names, err);
}

/* ---- the words ---- */

/* In the order of session_parts. `new` has options of its own. */
static const struct {
        int (*run)(struct daemon_client *client, const struct line *line, char **names, struct err *err);
        size_t min_names, max_names;
} actions[SESSION_PARTS] = {
        { do_ls, 0, 0 },        { do_show, 1, 1 },      { NULL, 1, 1 },
        { do_rm, 0, SIZE_MAX }, { do_interrupt, 1, 1 }, { do_restart, 1, 1 },
        { do_hibernate, 0, 1 }, { do_log, 1, 1 },       { do_install, 2, SIZE_MAX },
        { do_set, 1, 1 },       { do_move, 1, 1 },
};

static int check_names(size_t part, char **names, struct err *err) {
        size_t count = 0;
        while (names[count])
                count++;
        const char *name = session_parts[part].name;
        if (count == 1 && actions[part].min_names == 2)
                return err_set(err, ERR_USAGE, "session %s needs a package as well, for example \"humanize\"", name);
        if (count < actions[part].min_names)
                return err_set(err, ERR_USAGE, "session %s needs a session's name; \"glovebox session ls\" lists them",
                               name);
        if (count > actions[part].max_names)
                return err_set(err, ERR_USAGE, "session %s takes %s; leave \"%.60s\" out", name,
                               actions[part].max_names ? "one name" : "no name", names[actions[part].max_names]);
        return 0;
}

static int run_new(size_t part, char **args, struct err *err) {
        _cleanup_(session_options_release) struct session_options options = SESSION_OPTIONS_DEFAULT;
        struct option_rest rest;
        if (option_parse(&session_parts[part].options, &options, args, &rest, err) < 0)
                return -1;
        if (rest.help) {
                verb_print_part_help(stdout, verb_find("session"), &session_parts[part]);
                return 0;
        }
        return check_names(part, rest.operands, err) < 0 ? -1 : do_new(&options, rest.operands, err);
}

static int run_part(size_t part, char **args, struct err *err) {
        struct line line = { .limit = 20 };
        struct option_rest rest;
        struct socket_place place;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        if (option_parse(&session_parts[part].options, &line, args, &rest, err) < 0)
                return -1;
        if (rest.help) {
                verb_print_part_help(stdout, verb_find("session"), &session_parts[part]);
                return 0;
        }
        if (check_names(part, rest.operands, err) < 0 || socket_place_choose(&line.where, true, &place, err) < 0 ||
            daemon_client_open(&place, 0, &client, err) < 0)
                return -1;
        return actions[part].run(&client, &line, rest.operands, err);
}

static int fail_unknown(const char *word) {
        struct err err;
        struct suggestion near = { .word = word };
        for (size_t i = 0; i < SESSION_PARTS; i++)
                suggestion_consider(&near, session_parts[i].name);
        const char *best = suggestion_best(&near);
        if (best)
                (void) err_set(&err, ERR_USAGE, "session: unknown verb \"%.60s\"; did you mean \"%s\"?", word, best);
        else
                (void) err_set(&err, ERR_USAGE, "session: %s%.60s%s; \"glovebox session --help\" lists what there is",
                               *word ? "unknown verb \"" : "say what to do", word, *word ? "\"" : "");
        return terminal_fail(&err);
}

/* What people who come from elsewhere type. */
static const char *usual_word(const char *word) {
        static const char *const known[][2] = {
                { "list", "ls" },   { "create", "new" }, { "make", "new" },        { "remove", "rm" },
                { "delete", "rm" }, { "logs", "log" },   { "sleep", "hibernate" },
        };
        for (size_t i = 0; i < ELEMENTS(known); i++)
                if (strcmp(word, known[i][0]) == 0)
                        return known[i][1];
        return word;
}

int verb_session(int argc, char **argv) {
        const char *word = usual_word(argc > 1 ? argv[1] : "");
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
                verb_print_help(stdout, verb_find("session"));
                return 0;
        }
        for (size_t i = 0; i < SESSION_PARTS; i++) {
                if (strcmp(word, session_parts[i].name) != 0)
                        continue;
                struct err err = { 0 };
                int status = actions[i].run ? run_part(i, argv + 2, &err) : run_new(i, argv + 2, &err);
                return status < 0 ? terminal_fail(&err) : status;
        }
        return fail_unknown(word);
}
