/* `glovebox status` and `glovebox stop`: the daemon itself. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "cli/box_rows.h"
#include "cli/session_print.h"
#include "cli/session_verb.h"
#include "cli/ui/json_print.h"
#include "cli/ui/terminal.h"
#include "client/daemon_client.h"
#include "vault/vault.h"

enum { END_TIMEOUT_MS = 60000 };

struct line {
        struct socket_choice where;
        bool json, end_sessions;
};

#define FIELD(field) offsetof(struct line, field)

static const struct option_row status_rows[] = {
        { .name = "json", .kind = OPTION_FLAG, .offset = FIELD(json), .group = "Output", .help = "print JSON" },
        SOCKET_ROWS(FIELD(where)),
};
const struct option_table status_option_table = { .rows = status_rows,
                                                  .n_rows = ELEMENTS(status_rows),
                                                  .operands_anywhere = true };

static const struct option_row stop_rows[] = {
        { .name = "end-sessions",
          .kind = OPTION_FLAG,
          .offset = FIELD(end_sessions),
          .group = "Options",
          .help = "end the sessions too; by default the next daemon takes them over with their variables" },
        SOCKET_ROWS(FIELD(where)),
};
const struct option_table stop_option_table = { .rows = stop_rows,
                                                .n_rows = ELEMENTS(stop_rows),
                                                .operands_anywhere = true };

enum { LINE_READ, LINE_HELP };

static int status_read_line(const char *verb, char **args, const struct option_table *table, struct line *line,
                            struct socket_place *place, struct err *err) {
        struct option_rest rest;
        if (option_parse(table, line, args, &rest, err) < 0)
                return -1;
        if (rest.help) {
                verb_print_help(stdout, verb_find(verb));
                return LINE_HELP;
        }
        if (rest.operands[0] && strcmp(verb, "stop") == 0)
                return err_set(
                        err, ERR_USAGE,
                        "stop ends the daemon and takes no name; to end the run of a session: glovebox kill %.60s; "
                        "to put the session to sleep: glovebox session hibernate %.60s; to delete it: glovebox "
                        "session rm %.60s",
                        rest.operands[0], rest.operands[0], rest.operands[0]);
        if (rest.operands[0])
                return err_set(err, ERR_USAGE, "%s takes no operand; leave \"%.60s\" out", verb, rest.operands[0]);
        return socket_place_choose(&line->where, true, place, err) < 0 ? -1 : LINE_READ;
}

static bool is_absent(const struct err *err) {
        return err->code == ERR_NOT_FOUND || err->code == ERR_GONE;
}

/* "Not running" is an answer, not an error. */
static int print_absent(const struct line *line, const struct socket_place *place, const struct err *why,
                        struct err *err) {
        if (!line->json) {
                (void) printf("%s\n", why->message);
                return 1;
        }
        json_t *answer = json_pack("{s:b, s:s}", "running", 0, "socket", place->path);
        int code = json_print_answer(answer, err);
        json_decref(answer);
        return code < 0 ? -1 : 1;
}

static int show_status(const struct line *line, const struct socket_place *place, struct err *err) {
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err why = { 0 };
        if (daemon_client_open(place, DAEMON_ANY_VERSION, &client, &why) < 0) {
                if (is_absent(&why))
                        return print_absent(line, place, &why, err);
                *err = why;
                return -1;
        }
        json_t *answer = NULL;
        if (daemon_client_ask(&client, "status", NULL, &answer, err) < 0)
                return -1;
        int code = 0;
        if (line->json) {
                (void) json_object_set_new(answer, "running", json_true());
                code = json_print_answer(answer, err);
        } else
                status_print(answer);
        json_decref(answer);
        return code;
}

int verb_status(int argc, char **argv) {
        (void) argc;
        struct line line = { 0 };
        struct socket_place place;
        struct err err = { 0 };
        int read = status_read_line("status", argv + 1, &status_option_table, &line, &place, &err);
        int status = read == LINE_READ ? show_status(&line, &place, &err) : read == LINE_HELP ? 0 : -1;
        return status < 0 ? terminal_fail(&err) : status;
}

/* Until it has exited: a daemon that is started next must not find its locks. */
static int wait_for_end(int pidfd, struct err *err) {
        struct pollfd watched = { .fd = pidfd, .events = POLLIN };
        if (pidfd < 0 || poll(&watched, 1, END_TIMEOUT_MS) != 0)
                return 0;
        return err_set(err, ERR_TIMEOUT, "the daemon has not ended after %d s; see its log", END_TIMEOUT_MS / 1000);
}

/* Sessions that the vault keeps although no daemon runs: a daemon is started to end them. */
static bool has_orphans(const struct line *line) {
        char data_dir[DATA_DIR_PATH_MAX], path[DATA_DIR_PATH_MAX + 16];
        if (!line->end_sessions || data_dir_find(data_dir, NULL) < 0)
                return false;
        (void) snprintf(path, sizeof(path), "%s/vault.sock", data_dir);
        return vault_is_running(path);
}

static void tell_awake(json_int_t n) {
        if (n > 0)
                (void) fprintf(
                        stderr,
                        "glovebox: %lld session%s stay%s in memory for the next daemon; to end %s: glovebox stop "
                        "--end-sessions\n",
                        (long long) n, n == 1 ? "" : "s", n == 1 ? "s" : "", n == 1 ? "it" : "them");
}

static int stop_connected(const struct line *line, struct daemon_client *client, struct err *err) {
        _cleanup_fd_ int pidfd = daemon_client_pidfd(client);
        json_t *body = json_pack("{s:s, s:s}", "op", "shutdown", "sessions", line->end_sessions ? "end" : "keep");
        json_t *answer = NULL;
        int code = daemon_client_request(client, body, &answer, err);
        json_int_t n_awake = json_integer_value(json_object_get(answer, "awake"));
        json_decref(answer);
        if (code < 0 && err->code != ERR_GONE) /* it may exit without an answer */
                return -1;
        code = wait_for_end(pidfd, err);
        if (code == 0)
                tell_awake(n_awake);
        return code;
}

static int status_stop(const struct line *line, const struct socket_place *place, struct err *err) {
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        int code = daemon_client_open(place, DAEMON_ANY_VERSION, &client, err);
        if (code == 0)
                return stop_connected(line, &client, err);
        if (!is_absent(err))
                return -1;
        bool starts = has_orphans(line);
        if (starts && daemon_client_open(place, DAEMON_START | DAEMON_ANY_VERSION, &client, err) < 0)
                return -1;
        (void) printf("no daemon is running at %s%s\n", place->path,
                      starts ? "; ending the sessions that the last one left in memory" : "");
        return starts ? stop_connected(line, &client, err) : 0;
}

int verb_stop(int argc, char **argv) {
        (void) argc;
        struct line line = { 0 };
        struct socket_place place;
        struct err err = { 0 };
        int read = status_read_line("stop", argv + 1, &stop_option_table, &line, &place, &err);
        int status = read == LINE_READ ? status_stop(&line, &place, &err) : read == LINE_HELP ? 0 : -1;
        return status < 0 ? terminal_fail(&err) : status;
}
