/* `glovebox ps`, `top`, `kill` and `logs`: sessions and runs, with a daemon or without. */
#include "cli/process_verb.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/units.h"
#include "cli/box_rows.h"
#include "cli/local_run.h"
#include "cli/remote_run.h"
#include "cli/session_print.h"
#include "cli/ui/json_print.h"
#include "cli/ui/key_mode.h"
#include "cli/ui/table.h"
#include "cli/ui/terminal.h"

enum { ID_SHOWN = 10, KILL_WAIT_MS = 3000, END_WAIT_MS = 8000, KILL_STEP_MS = 50 };

struct line {
        struct socket_choice where;
        bool json, hard, once, follow, quiet;
        uint64_t limit, interval_ms;
};

#define FIELD(field) offsetof(struct line, field)
#define JSON_ROW { .name = "json", .kind = OPTION_FLAG, .offset = FIELD(json), .group = "Output", .help = "print JSON" }
#define TABLE(array) { .rows = (array), .n_rows = ELEMENTS(array), .operands_anywhere = true }

static const struct option_row ps_rows[] = {
        JSON_ROW,
        { .name = "quiet",
          .letter = 'q',
          .kind = OPTION_FLAG,
          .offset = FIELD(quiet),
          .group = "Output",
          .help = "print ids only, one per line" },
        SOCKET_ROWS(FIELD(where)),
};
/* Of docker ps. */
static const struct option_habit ps_habits[] = {
        { "a", "leave it out: all sessions and runs are listed" },
        { "all", "leave it out: all sessions and runs are listed" },
        { "aq", "-q lists the ids of all" },
        { "qa", "-q lists the ids of all" },
        { NULL, NULL },
};
const struct option_table ps_option_table = {
        .rows = ps_rows, .n_rows = ELEMENTS(ps_rows), .operands_anywhere = true, .habits = ps_habits
};

static const struct option_row top_rows[] = {
        { .name = "interval",
          .letter = 'd',
          .kind = OPTION_DURATION,
          .offset = FIELD(interval_ms),
          .argument = "TIME",
          .group = "Output",
          .min = 200,
          .max = 3600000,
          .standard = "2s",
          .help = "the time between updates" },
        { .name = "once",
          .kind = OPTION_FLAG,
          .offset = FIELD(once),
          .group = "Output",
          .help = "print one table and exit, as when the output is not a terminal" },
        SOCKET_ROWS(FIELD(where)),
};
const struct option_table top_option_table = TABLE(top_rows);

static const struct option_row kill_rows[] = {
        { .name = "hard",
          .letter = '9',
          .kind = OPTION_FLAG,
          .offset = FIELD(hard),
          .group = "Options",
          .help = "end it at once: a session's interpreter without an interrupt first (variables are lost, files stay), "
                  "a run without a SIGTERM first" },
        SOCKET_ROWS(FIELD(where)),
};
const struct option_table kill_option_table = TABLE(kill_rows);

static const struct option_row logs_rows[] = {
        { .name = "follow",
          .letter = 'f',
          .kind = OPTION_FLAG,
          .offset = FIELD(follow),
          .group = "Options",
          .help = "accepted for compatibility: an active run is always followed; Ctrl-C does not stop it" },
        { .name = "tail",
          .letter = 'n',
          .kind = OPTION_COUNT,
          .offset = FIELD(limit),
          .argument = "NUMBER",
          .group = "Options",
          .min = 1,
          .max = 1000,
          .standard = "10",
          .help = "the number of runs" },
        SOCKET_ROWS(FIELD(where)),
};
const struct option_table logs_option_table = TABLE(logs_rows);

/* ---- the command line ---- */

static int process_verb_read_line(const char *verb, char **args, const struct option_table *table, struct line *line,
                                  struct option_rest *ret_rest, struct daemon_client *client, struct err *err) {
        struct socket_place place;
        if (option_parse(table, line, args, ret_rest, err) < 0)
                return -1;
        if (ret_rest->help) {
                verb_print_help(stdout, verb_find(verb));
                return 1;
        }
        if (socket_place_choose(&line->where, true, &place, err) < 0)
                return -1;
        return daemon_client_open(&place, 0, client, err);
}

/* For verbs on runs without a daemon, too: if no daemon runs, `client` stays closed, and `ret_no_daemon` has the
 * reason. */
static int read_line_anyhow(const char *verb, char **args, const struct option_table *table, struct line *line,
                            struct option_rest *ret_rest, struct daemon_client *client, struct err *ret_no_daemon) {
        int code = process_verb_read_line(verb, args, table, line, ret_rest, client, ret_no_daemon);
        bool is_absent = ret_no_daemon->code == ERR_NOT_FOUND || ret_no_daemon->code == ERR_GONE;
        return code < 0 && is_absent ? 0 : code;
}

/* All that runs. Without a daemon and without a run, `no_daemon` is the answer. */
static int ask_ps(struct daemon_client *client, const struct err *no_daemon, json_t **ret_answer, struct err *err) {
        json_t *answer = NULL;
        if (client->fd >= 0 && daemon_client_ask(client, "ps", NULL, &answer, err) < 0)
                return -1;
        if (!answer)
                answer = json_pack("{s:[]}", "processes");
        json_t *processes = json_object_get(answer, "processes");
        local_run_list(processes);
        if (client->fd < 0 && json_array_size(processes) == 0 && no_daemon->code != ERR_NONE) {
                json_decref(answer);
                *err = *no_daemon;
                return -1;
        }
        *ret_answer = answer;
        return 0;
}

static int refuse_operands(const char *verb, const struct option_rest *rest, struct err *err) {
        return rest->operands[0]
                       ? err_set(err, ERR_USAGE, "%s takes no operand; leave \"%.60s\" out", verb, rest->operands[0])
                       : 0;
}

/* ---- ps and top ---- */

static const char *process_verb_text_at(const json_t *object, const char *key) {
        const char *text = json_string_value(json_object_get(object, key));
        return text ? text : "";
}

static uint64_t process_verb_number_at(const json_t *object, const char *key) {
        json_int_t value = json_integer_value(json_object_get(object, key));
        return value > 0 ? (uint64_t) value : 0;
}

/* CPU time used by `id` in the answer before, or UINT64_MAX. */
static uint64_t cpu_before(const json_t *before, const char *id) {
        size_t i;
        json_t *item;
        json_array_foreach (json_object_get(before, "processes"), i, item)
                if (strcmp(process_verb_text_at(item, "id"), id) == 0)
                        return process_verb_number_at(item, "cpu_ms");
        return UINT64_MAX;
}

static void add_cpu(struct table *table, const json_t *item, const json_t *before, uint64_t elapsed_ms) {
        uint64_t now = process_verb_number_at(item, "cpu_ms"),
                 was = before ? cpu_before(before, process_verb_text_at(item, "id")) : UINT64_MAX;
        if (!before)
                table_add_format(table, "%.1f s", (double) now / 1000);
        else if (was > now || elapsed_ms == 0)
                table_add(table, NULL);
        else
                table_add_format(table, "%.0f %%", 100.0 * (double) (now - was) / (double) elapsed_ms);
}

static void add_item(struct table *table, const json_t *item, const json_t *before, uint64_t elapsed_ms) {
        const json_t *run = json_array_get(json_object_get(item, "runs"), 0);
        bool ephemeral = json_is_true(json_object_get(item, "ephemeral"));
        char bytes[32], age[32], name[140];
        (void) session_print_name(item, name);
        table_add_format(table, "%.*s", ID_SHOWN,
                         ephemeral && run ? process_verb_text_at(run, "run_id") : process_verb_text_at(item, "id"));
        table_add(table, ephemeral ? "(run)" : *name ? name : NULL);
        table_add(table, run ? process_verb_text_at(run, "status") : process_verb_text_at(item, "state"));
        table_add(table, process_verb_text_at(item, "image"));
        uint64_t memory = process_verb_number_at(item, "memory_bytes");
        table_add(table, memory ? units_format_bytes(memory, bytes) : NULL);
        add_cpu(table, item, before, elapsed_ms);
        table_add(table, run ? format_age(process_verb_number_at(run, "running_ms"), age) : NULL);
        table_add(table, run ? process_verb_text_at(run, "what") : NULL);
}

static void print_processes(const json_t *answer, const json_t *before, uint64_t elapsed_ms) {
        static const char *const headings[] = { "ID", "NAME", "STATE", "IMAGE", "MEMORY", "CPU", "TIME", "RUNS" };
        struct table table = table_make(headings, ELEMENTS(headings));
        size_t i;
        json_t *item;
        json_array_foreach (json_object_get(answer, "processes"), i, item)
                add_item(&table, item, before, elapsed_ms);
        table_print(&table, stdout);
        table_release(&table);
}

static void print_ids(const json_t *answer) {
        size_t i;
        json_t *item;
        json_array_foreach (json_object_get(answer, "processes"), i, item) {
                const json_t *run = json_array_get(json_object_get(item, "runs"), 0);
                bool ephemeral = json_is_true(json_object_get(item, "ephemeral"));
                (void) printf("%.*s\n", ID_SHOWN,
                              ephemeral && run ? process_verb_text_at(run, "run_id")
                                               : process_verb_text_at(item, "id"));
        }
}

int verb_ps(int argc, char **argv) {
        (void) argc;
        struct line line = { 0 };
        struct option_rest rest;
        struct err err = { 0 };
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err no_daemon = { 0 };
        int code = read_line_anyhow("ps", argv + 1, &ps_option_table, &line, &rest, &client, &no_daemon);
        if (code != 0)
                return code > 0 ? 0 : terminal_fail(&no_daemon);
        json_t *answer = NULL;
        if (refuse_operands("ps", &rest, &err) < 0 || ask_ps(&client, &no_daemon, &answer, &err) < 0)
                return terminal_fail(&err);
        if (line.json)
                code = json_print_answer(answer, &err);
        else if (line.quiet)
                print_ids(answer);
        else
                print_processes(answer, NULL, 0);
        json_decref(answer);
        return code < 0 ? terminal_fail(&err) : 0;
}

/* q, Enter or Ctrl-C ends it on a terminal; other input is not read. The first table comes after a short interval, so
 * that there is something to compare. */
static int process_watch(struct daemon_client *client, const struct err *no_daemon, const struct line *line,
                         struct err *err) {
        struct key_mode keys = { 0 };
        bool repeat = isatty(STDOUT_FILENO) && !line->once, has_keys = repeat && key_mode_enter(&keys);
        json_t *before = NULL;
        uint64_t before_ms = clock_now_ms();
        int code = ask_ps(client, no_daemon, &before, err);
        for (uint64_t wait_ms = 500; code == 0; wait_ms = line->interval_ms) {
                if (key_mode_wait(&keys, (int) wait_ms))
                        break;
                json_t *now = NULL;
                code = ask_ps(client, no_daemon, &now, err);
                uint64_t now_ms = clock_now_ms();
                if (code == 0) {
                        if (repeat)
                                (void) printf("\033[H\033[2Jglovebox top: every %g s, %s\n\n",
                                              (double) line->interval_ms / 1000,
                                              has_keys ? "Enter ends it (or q)" : "Ctrl-C ends it");
                        print_processes(now, before, now_ms - before_ms);
                        (void) fflush(stdout);
                }
                json_decref(before);
                before = now;
                before_ms = now_ms;
                if (!repeat)
                        break;
        }
        json_decref(before);
        if (has_keys)
                key_mode_leave(&keys);
        return code;
}

int verb_top(int argc, char **argv) {
        (void) argc;
        struct line line = { .interval_ms = 2000 };
        struct option_rest rest;
        struct err err = { 0 };
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err no_daemon = { 0 };
        int code = read_line_anyhow("top", argv + 1, &top_option_table, &line, &rest, &client, &no_daemon);
        if (code != 0)
                return code > 0 ? 0 : terminal_fail(&no_daemon);
        if (refuse_operands("top", &rest, &err) < 0 || process_watch(&client, &no_daemon, &line, &err) < 0)
                return terminal_fail(&err);
        return 0;
}

/* ---- kill ---- */

static int ask_to_kill(struct daemon_client *client, const char *name, bool hard, json_t **ret_answer,
                       struct err *err) {
        json_t *body = json_pack("{s:s, s:s, s:b}", "op", "kill", "session", name, "hard", (int) hard);
        return daemon_client_request(client, body, ret_answer, err);
}

/* "running", "idle", "lost", ...; "" when it is gone. */
static const char *state_of(struct daemon_client *client, const char *id, char ret_state[static 16]) {
        json_t *answer = NULL;
        struct err ignored;
        ret_state[0] = '\0';
        if (daemon_client_ask(client, "session.show", id, &answer, &ignored) == 0)
                (void) snprintf(ret_state, 16, "%s", process_verb_text_at(answer, "state"));
        json_decref(answer);
        return ret_state;
}

/* True when `glovebox ps` does not list it any more. */
static bool is_gone(struct daemon_client *client, const char *id) {
        json_t *answer = NULL, *item;
        struct err ignored;
        size_t i;
        bool is_listed = false;
        if (daemon_client_ask(client, "ps", NULL, &answer, &ignored) == 0)
                json_array_foreach (json_object_get(answer, "processes"), i, item)
                        is_listed |= strcmp(process_verb_text_at(item, "id"), id) == 0;
        json_decref(answer);
        return !is_listed;
}

/* A program that catches SIGTERM has a moment; then its caller, or the daemon, ends it. */
static void wait_for_end(struct daemon_client *client, const char *id) {
        for (int waited = 0; waited < END_WAIT_MS && !is_gone(client, id); waited += KILL_STEP_MS)
                (void) poll(NULL, 0, KILL_STEP_MS);
}

/* Interrupted first: code that reacts keeps its variables. */
static int kill_one(struct daemon_client *client, const char *name, bool hard, struct err *err) {
        json_t *answer = NULL;
        if (ask_to_kill(client, name, hard, &answer, err) < 0)
                return -1;
        int code = 0;
        const char *done = process_verb_text_at(answer, "done"), *id = process_verb_text_at(answer, "session");
        if (strcmp(done, "nothing") == 0) {
                code = err_set(err, ERR_NOT_FOUND,
                               "session %.100s runs nothing now; to remove it: glovebox session rm %.100s", name, name);
        } else if (strcmp(done, "asked") == 0) {
                wait_for_end(client, id);
                (void) printf("%s: ended\n", name);
        } else if (strcmp(done, "ended") == 0 || strcmp(done, "cancelled") == 0) {
                (void) printf("%s: %s\n", name, *done == 'e' ? "ended" : "ended before it began");
        } else if (strcmp(done, "restarted") == 0) {
                (void) printf("%s: ended; the session's variables are lost, its files stay\n", name);
        } else {
                char state[16] = "running";
                for (int waited = 0; waited < KILL_WAIT_MS && strcmp(state, "running") == 0; waited += KILL_STEP_MS) {
                        (void) poll(NULL, 0, KILL_STEP_MS);
                        (void) state_of(client, id, state);
                }
                if (strcmp(state, "running") == 0)
                        code = kill_one(client, id, true, err);
                else if (strcmp(state, "lost") == 0) /* the daemon waits no longer than this */
                        (void) printf("%s: ended, since it did not react; the session's variables are lost, its files "
                                      "stay\n",
                                      name);
                else
                        (void) printf("%s: interrupted; the session's variables stay\n", name);
        }
        json_decref(answer);
        return code;
}

/* Of the daemon, or without one. */
static int kill_anywhere(struct daemon_client *client, const char *name, bool hard, struct err *err) {
        if (client->fd >= 0 && kill_one(client, name, hard, err) == 0)
                return 0;
        if (client->fd >= 0 && err->code != ERR_NOT_FOUND)
                return -1;
        struct err of_local;
        if (local_run_kill(name, hard, &of_local) < 0) {
                if (of_local.code != ERR_NOT_FOUND || client->fd < 0)
                        *err = of_local;
                return -1;
        }
        (void) printf("%s: ended\n", name);
        return 0;
}

int verb_kill(int argc, char **argv) {
        (void) argc;
        struct line line = { 0 };
        struct option_rest rest;
        struct err err = { 0 };
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err no_daemon = { 0 };
        int code = read_line_anyhow("kill", argv + 1, &kill_option_table, &line, &rest, &client, &no_daemon);
        if (code != 0)
                return code > 0 ? 0 : terminal_fail(&no_daemon);
        if (!rest.operands[0])
                code = err_set(&err, ERR_USAGE, "kill needs a session's name or a run's id; glovebox ps lists them");
        int status = code < 0 ? terminal_fail(&err) : 0;
        for (char **name = rest.operands; code == 0 && *name; name++)
                if (kill_anywhere(&client, *name, line.hard, &err) < 0)
                        status = terminal_fail(&err);
        return status;
}

/* ---- logs ---- */

int process_follow_run(struct daemon_client *client, const char *session, const char *run, bool json, struct err *err) {
        json_t *body = json_pack("{s:s, s:s, s:s, s:i}", "op", "run.read", "session", session, "run", run, "from", 1);
        json_t *result = NULL;
        struct daemon_request request = { .body = body };
        struct remote_run remote = { .client = client, .json = json, .show_value = true };
        int code = body ? remote_run_call(&remote, &request, &result, err)
                        : err_set(err, ERR_USAGE, "the name or the run's id is not valid UTF-8");
        if (code == DAEMON_CALL_LEFT)
                code = remote_run_leave(&remote);
        else if (code == DAEMON_CALL_ANSWERED)
                code = remote_run_report(&remote, result, err);
        json_decref(result);
        json_decref(body);
        return code;
}

/* On a terminal a line before each run, as their outputs have no other mark between them. */
static void print_run_heading(const json_t *run) {
        time_t began = (time_t) (process_verb_number_at(run, "began") / 1000);
        struct tm local;
        char when[32] = "";
        if (!isatty(STDOUT_FILENO))
                return;
        if (localtime_r(&began, &local))
                (void) strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &local);
        (void) printf("%s-- %s, run %s%s\n", terminal_style(STDOUT_FILENO, TERMINAL_DIM), when,
                      process_verb_text_at(run, "run_id"), terminal_style(STDOUT_FILENO, TERMINAL_PLAIN));
        (void) fflush(stdout);
}

static int print_logs(struct daemon_client *client, const char *session, uint64_t limit, struct err *err) {
        json_t *body = json_pack("{s:s, s:s, s:I}", "op", "session.log", "session", session, "limit",
                                 (json_int_t) limit),
               *answer = NULL;
        int code = daemon_client_request(client, body, &answer, err);
        const json_t *runs = json_object_get(answer, "runs");
        for (size_t i = json_array_size(runs); code == 0 && i > 0; i--) { /* they come newest first */
                print_run_heading(json_array_get(runs, i - 1));
                int status = process_follow_run(
                        client, session, process_verb_text_at(json_array_get(runs, i - 1), "run_id"), false, err);
                code = status < 0 ? -1 : 0;
                if (status > 128 && client->fd < 0)
                        break;
        }
        json_decref(answer);
        return code;
}

int verb_logs(int argc, char **argv) {
        (void) argc;
        struct line line = { .limit = 10 };
        struct option_rest rest;
        struct err err = { 0 };
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        int code = process_verb_read_line("logs", argv + 1, &logs_option_table, &line, &rest, &client, &err);
        if (code != 0)
                return code > 0 ? 0 : terminal_fail(&err);
        if (!rest.operands[0] || rest.operands[1])
                code = err_set(&err, ERR_USAGE, "logs needs one session's name; glovebox ps lists them");
        else
                code = print_logs(&client, rest.operands[0], line.limit, &err);
        return code < 0 ? terminal_fail(&err) : 0;
}
