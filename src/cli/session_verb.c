/* `glovebox session ...`: the sessions that the daemon keeps. */
#include "cli/session_verb.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/units.h"
#include "cli/attend.h"
#include "cli/box_rows.h"
#include "cli/json_print.h"
#include "cli/session_print.h"
#include "cli/session_request.h"
#include "cli/suggest.h"
#include "cli/terminal.h"

/* What the parts but `new` are told. */
struct line {
        struct socket_choice where;
        bool json, names, trim, keep_files;
        const char *run;
        uint64_t limit, timeout_ms;
};

#define FIELD(field) offsetof(struct line, field)
#define JSON_ROW \
        { .name = "json", .kind = OPTION_FLAG, .offset = FIELD(json), .group = "Options", .help = "print JSON" }
#define TABLE(array) { .rows = (array), .n_rows = ELEMENTS(array), .operands_anywhere = true }

static const struct option_row plain_rows[] = { JSON_ROW, SOCKET_ROWS(FIELD(where)) };
static const struct option_row ls_rows[] = {
        JSON_ROW,
        { .name = "names", .kind = OPTION_FLAG, .offset = FIELD(names), .group = "Options",
          .help = "print names only, one to a line" },
        SOCKET_ROWS(FIELD(where)),
};
static const struct option_row rm_rows[] = {
        JSON_ROW,
        { .name = "keep-files", .kind = OPTION_FLAG, .offset = FIELD(keep_files), .group = "Options",
          .help = "leave the session's directory on the disk" },
        SOCKET_ROWS(FIELD(where)),
};
static const struct option_row hibernate_rows[] = {
        JSON_ROW,
        { .name = "trim", .kind = OPTION_FLAG, .offset = FIELD(trim), .group = "Options",
          .help = "only put large tables and arrays on the disk; the interpreter stays" },
        SOCKET_ROWS(FIELD(where)),
};
static const struct option_row log_rows[] = {
        JSON_ROW,
        { .name = "run", .kind = OPTION_TEXT, .offset = FIELD(run), .argument = "ID", .group = "Options",
          .help = "print what this run printed, and follow it while it is on" },
        { .name = "limit", .kind = OPTION_COUNT, .offset = FIELD(limit), .argument = "NUMBER", .group = "Options",
          .min = 1, .max = 1000, .standard = "20", .help = "how many runs to list, the newest first" },
        SOCKET_ROWS(FIELD(where)),
};

static const struct option_row install_rows[] = {
        JSON_ROW,
        { .name = "timeout", .kind = OPTION_DURATION, .offset = FIELD(timeout_ms), .argument = "TIME",
          .group = "Options", .min = 1000, .max = 86400000, .standard = "5m",
          .help = "end the install after this time, for example 90s or 10m" },
        SOCKET_ROWS(FIELD(where)),
};

const struct verb_part session_parts[SESSION_PARTS] = {
        { .name = "ls", .operands = "", .summary = "what sessions there are", .options = TABLE(ls_rows) },
        { .name = "show", .operands = "NAME", .summary = "one session, its limits, isolation and last runs",
          .options = TABLE(plain_rows), .completion = COMPLETE_SESSIONS },
        { .name = "new", .operands = "NAME", .summary = "make a session; nothing changes where it is there already",
          .options = { .rows = session_new_rows, .n_rows = SESSION_NEW_ROWS, .operands_anywhere = true } },
        { .name = "rm", .operands = "NAME...", .summary = "end sessions and delete their files",
          .options = TABLE(rm_rows), .completion = COMPLETE_SESSIONS },
        { .name = "interrupt", .operands = "NAME", .summary = "interrupt what it runs; variables stay",
          .options = TABLE(plain_rows), .completion = COMPLETE_SESSIONS },
        { .name = "restart", .operands = "NAME", .summary = "a new interpreter; variables are lost, files stay",
          .options = TABLE(plain_rows), .completion = COMPLETE_SESSIONS },
        { .name = "hibernate", .operands = "NAME",
          .summary = "put its variables on the disk and give its memory back; the next call brings them back",
          .options = TABLE(hibernate_rows), .completion = COMPLETE_SESSIONS },
        { .name = "log", .operands = "NAME", .summary = "its runs; with --run, what one of them printed",
          .options = TABLE(log_rows), .completion = COMPLETE_SESSIONS },
        { .name = "install", .operands = "NAME PACKAGE...",
          .summary = "install Python packages into one session, from where this host's pip gets its own",
          .options = TABLE(install_rows), .completion = COMPLETE_SESSIONS },
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

/* Every name is tried; the first that failed is the error. */
static int do_rm(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
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

static void print_hibernated(const json_t *answer) {
        const char *state = json_string_value(json_object_get(answer, "state"));
        json_int_t bytes = json_integer_value(json_object_get(answer, "bytes"));
        char text[32], name[200];
        (void) printf("%s, %s on the disk\n", state ? state : "done",
                      units_format_bytes(bytes > 0 ? (uint64_t) bytes : 0, text));
        const json_t *held_back = json_object_get(answer, "held_back");
        for (size_t i = 0; i < json_array_size(held_back); i++) {
                const char *held = json_string_value(json_array_get(held_back, i));
                (void) snprintf(name, sizeof(name), "%s", held ? held : "");
                terminal_make_harmless(name);
                (void) printf("held awake by %s\n", name);
        }
}

static int do_hibernate(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
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

/* Reads a run again, and goes on with it while it is on: its exit status is ours. */
static int follow_run(struct daemon_client *client, const struct line *line, const char *name, struct err *err) {
        json_t *body = json_pack("{s:s, s:s, s:s, s:i}", "op", "run.read", "session", name, "run", line->run, "from",
                                 1),
               *result = NULL;
        struct daemon_request request = { .body = body };
        struct attendance attendance = { .client = client, .json = line->json, .quiet = false, .show_value = true };
        int code = body ? attend_call(&attendance, &request, &result, err)
                        : err_set(err, ERR_USAGE, "the name or the run's id is not valid UTF-8");
        if (code == DAEMON_CALL_LEFT)
                code = attend_leave(&attendance);
        else if (code == DAEMON_CALL_ANSWERED)
                code = attend_report(&attendance, result, err);
        json_decref(result);
        json_decref(body);
        return code;
}

static int do_log(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        if (line->run)
                return follow_run(client, line, names[0], err);
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
                (void) fprintf(stderr, "glovebox: %s is imported in another version; \"glovebox session restart\" "
                               "makes the new one visible\n", json_string_value(json_array_get(stale, i)));
        if (json_array_size(installed) == 0 && attend_exit_status(result) == 0)
                (void) fprintf(stderr, "glovebox: everything is there already\n");
}

/* Hanging up, by Ctrl-C for instance, ends the install; the packages are then as they were. */
static int do_install(struct daemon_client *client, const struct line *line, char **names, struct err *err) {
        json_t *body = json_pack("{s:s, s:s, s:b, s:b}", "op", "session.install", "session", names[0], "stream",
                                 !line->json, "cancel_on_disconnect", 1),
               *packages = json_array(), *result = NULL;
        int code = body ? 0 : err_set(err, ERR_USAGE, "the session's name is not valid UTF-8");
        for (char **name = names + 1; code == 0 && *name; name++)
                if (json_array_append_new(packages, json_string(*name)) < 0)
                        code = err_set(err, ERR_USAGE, "the name of a package is not valid UTF-8");
        struct daemon_request request = { .body = body };
        struct attendance attendance = { .client = client, .json = line->json };
        (void) json_object_set_new(body, "packages", packages);
        if (line->timeout_ms)
                (void) json_object_set_new(body, "timeout_ms", json_integer((json_int_t) line->timeout_ms));
        if (code == 0)
                code = attend_call(&attendance, &request, &result, err);
        if (code == DAEMON_CALL_LEFT)
                code = attend_leave(&attendance);
        else if (code == DAEMON_CALL_ANSWERED) {
                code = attend_report(&attendance, result, err);
                if (!line->json)
                        print_installed(result);
        }
        json_decref(result);
        json_decref(body);
        return code;
}

/* ---- the words ---- */

/* In the order of session_parts. `new` has options of its own. */
static const struct {
        int (*run)(struct daemon_client *client, const struct line *line, char **names, struct err *err);
        size_t min_names, max_names;
} actions[SESSION_PARTS] = {
        { do_ls, 0, 0 },        { do_show, 1, 1 },    { NULL, 1, 1 },         { do_rm, 1, SIZE_MAX },
        { do_interrupt, 1, 1 }, { do_restart, 1, 1 }, { do_hibernate, 1, 1 }, { do_log, 1, 1 },
        { do_install, 2, SIZE_MAX },
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

int verb_session(int argc, char **argv) {
        const char *word = argc > 1 ? argv[1] : "";
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
