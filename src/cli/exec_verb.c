/* `glovebox exec SESSION ...`: code or a command in a session that stays. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/exec_verb.h"
#include "cli/input_feed.h"
#include "cli/limit_note.h"
#include "cli/remote_run.h"
#include "cli/run_code.h"
#include "cli/run_hint.h"
#include "cli/session_request.h"
#include "cli/session_verb.h"
#include "cli/source_text.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"

/* Code up to this size travels in the request itself. */
enum { INLINE_MAX = 64 << 10 };

static int fail_without_session(void) {
        (void) fprintf(stderr,
                       "glovebox: exec needs a session and something to run:\n%s"
                       "\"glovebox exec --help\" explains the options.\n",
                       verb_find("exec")->synopsis);
        return err_code_exit_status(ERR_USAGE);
}

static int put_arguments(const struct run_request *request, json_t *body, struct err *err) {
        json_t *args = json_array();
        (void) json_object_set_new(body, "args", args);
        for (char **word = request->args; *word; word++)
                if (json_array_append_new(args, json_string(*word)) < 0)
                        return err_set(err, ERR_USAGE, "an argument of the code is not valid UTF-8");
        return 0;
}

static int put_code(const struct session_options *options, json_t *body, struct daemon_request *call, struct err *err) {
        const struct run_request *request = &options->run.request;
        json_t *code = request->code_size <= INLINE_MAX ? json_stringn(request->code, request->code_size) : NULL;
        bool is_file = !options->run.code_text && !request->stdin_is_code;
        (void) json_object_set_new(body, "op", json_string("execute"));
        if (is_file && json_object_set_new(body, "file", json_string(request->code_name)) < 0)
                return err_set(err, ERR_USAGE, "the file's name is not valid UTF-8; rename it");
        if (request->args[0] && put_arguments(request, body, err) < 0)
                return -1;
        if (code)
                return json_object_set_new(body, "code", code);
        call->follows = request->code;
        call->follows_size = request->code_size;
        return json_object_set_new(body, "code_follows", json_true());
}

static int put_command(const struct session_options *options, json_t *body, struct err *err) {
        const struct run_request *request = &options->run.request;
        (void) json_object_set_new(body, "op", json_string("command"));
        if (options->user && json_object_set_new(body, "user", json_string(options->user)) < 0)
                return err_set(err, ERR_USAGE, "the user's name is not valid UTF-8");
        if (request->language == RUN_BASH) {
                if (json_object_set_new(body, "shell", json_stringn(request->code, request->code_size)) < 0)
                        return err_set(err, ERR_USAGE, "the shell code is not valid UTF-8; save it as UTF-8");
        } else {
                json_t *argv = json_array();
                for (char **word = request->args; *word; word++)
                        if (json_array_append_new(argv, json_string(*word)) < 0) {
                                json_decref(argv);
                                return err_set(err, ERR_USAGE, "an argument of the command is not valid UTF-8");
                        }
                (void) json_object_set_new(body, "argv", argv);
        }
        return 0;
}

/* Standard input of this process, if the run requests it: which needs a run whose events are read here. */
static void offer_input(const struct run_request *request, const struct input_feed *feed, json_t *body) {
        if (!request->stdin_is_code && !request->json)
                (void) json_object_set_new(body, "input", json_string(feed->token));
}

/* On a terminal: its colours and width as variables of this run, because programs cannot ask a pipe. */
static void put_terminal(json_t *body) {
        static const char *const colours[] = { "FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS" };
        if (!isatty(STDOUT_FILENO))
                return;
        json_t *env = json_object();
        char width[16];
        (void) snprintf(width, sizeof(width), "%u", terminal_width(STDOUT_FILENO, 80));
        (void) json_object_set_new(env, "COLUMNS", json_string(width));
        for (size_t i = 0; terminal_has_colour(STDOUT_FILENO) && i < ELEMENTS(colours); i++)
                (void) json_object_set_new(env, colours[i], json_string("1"));
        if (terminal_has_colour(STDOUT_FILENO))
                (void) json_object_set_new(env, "TERM", json_string("xterm-256color"));
        (void) json_object_set_new(body, "env", env);
}

static int make_body(const struct session_options *options, const char *session, json_t *body,
                     struct daemon_request *call, struct err *err) {
        const struct run_request *request = &options->run.request;
        if (json_object_set_new(body, "session", json_string(session)) < 0)
                return err_set(err, ERR_USAGE, "the session's name is not valid UTF-8; use letters, digits and . _ -");
        (void) json_object_set_new(body, "stream", json_boolean(!request->json));
        if (!request->json)
                put_terminal(body);
        if (request->limits.timeout_ms)
                (void) json_object_set_new(body, "timeout_ms", json_integer((json_int_t) request->limits.timeout_ms));
        if (request->language != RUN_PYTHON)
                return put_command(options, body, err);
        if (options->user)
                return err_set(err, ERR_USAGE,
                               "--user is for commands (-- COMMAND, or --language bash); Python code runs as the "
                               "session's own user");
        return put_code(options, body, call, err);
}

/* With options the session is made first: an existing one keeps its options, and the user gets a warning. */
static int make_session(const struct session_options *options, const char *session, struct daemon_client *client,
                        struct err *err) {
        struct session_options creation = *options;
        creation.run.request.limits.timeout_ms = 0; /* of this run, not of the session */
        json_t *body = json_object(), *answer = NULL;
        const struct daemon_request call = { .body = body };
        int code = session_request_put(&creation, body, err);
        limit_note_print(&creation.run.request);
        if (code == 0 && json_object_size(body) > 0) {
                (void) json_object_set_new(body, "op", json_string("session.create"));
                (void) json_object_set_new(body, "provisional", json_true());
                (void) json_object_set_new(body, "session", json_string(session));
                code = daemon_client_call(client, &call, &answer, err);
                if (code == 0 && !options->run.request.quiet)
                        session_request_warn(&creation, session, answer);
        }
        json_decref(answer);
        json_decref(body);
        return code;
}

/* ---- pip ---- */

enum { PACKAGES_MAX = 64 };

/* Options of pip without an effect here. */
static bool is_harmless_option(const char *word) {
        static const char *const harmless[] = { "-q", "--quiet", "-U", "--upgrade" };
        for (size_t i = 0; i < ELEMENTS(harmless); i++)
                if (strcmp(word, harmless[i]) == 0)
                        return true;
        return false;
}

/* "pip install a b", "%pip install a", "!python3 -m pip install a": the packages, in `text`, which is cut up. False: it
 * is something else, or has other options, which pip itself explains. */
static bool read_pip(char *text, char *ret_packages[static PACKAGES_MAX + 1]) {
        static const char *const before[] = { "python3", "python", "-m" };
        char *words[PACKAGES_MAX + 8], *rest = text, *word;
        size_t n = 0, at = 0, n_packages = 0;
        if (strpbrk(text, "\n;&|<>$`"))
                return false;
        rest += strspn(rest, " \t%!");
        while (n < ELEMENTS(words) && (word = strsep(&rest, " \t")))
                if (*word)
                        words[n++] = word;
        for (size_t i = 0; i < ELEMENTS(before); i++)
                at += at < n && strcmp(words[at], before[i]) == 0;
        if (at + 2 >= n || (strcmp(words[at], "pip") != 0 && strcmp(words[at], "pip3") != 0) ||
            strcmp(words[at + 1], "install") != 0)
                return false;
        for (at += 2; at < n && n_packages < PACKAGES_MAX; at++) {
                if (words[at][0] != '-')
                        ret_packages[n_packages++] = words[at];
                else if (!is_harmless_option(words[at]))
                        return false;
        }
        ret_packages[n_packages] = NULL;
        return n_packages > 0;
}

/* The text of a run that is only an install, or NULL. The caller frees it. */
static char *text_of_install(const struct run_request *request) {
        char text[2000] = "";
        size_t used = 0;
        if (request->language == RUN_COMMAND)
                for (char **word = request->args; *word && used < sizeof(text); word++)
                        used += (size_t) snprintf(text + used, sizeof(text) - used, "%s%s", used ? " " : "", *word);
        else if (request->code_size < sizeof(text) &&
                 (request->language == RUN_BASH || strchr("%!", request->code[strspn(request->code, " \t\n")])))
                (void) snprintf(text, sizeof(text), "%.*s", (int) request->code_size, request->code);
        size_t size = strlen(text);
        while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' '))
                text[--size] = '\0';
        return used < sizeof(text) && size > 0 && strstr(text, "pip") ? strdup(text) : NULL;
}

/* A box has no network, and pip in it can only fail: `session install` is done instead. */
static int install_instead(const struct session_options *options, const char *session, char **packages,
                           struct err *err) {
        struct socket_place place;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        struct err there = { 0 };
        json_t *answer = NULL;
        const struct run_request *request = &options->run.request;
        if (!request->quiet && !request->json)
                (void) fprintf(stderr,
                               "glovebox: a box has no network; running instead: glovebox session install %s %s%s\n",
                               session, packages[0], packages[1] ? " ..." : "");
        if (socket_place_choose(&options->run.where, true, &place, err) < 0 ||
            daemon_client_open(&place, DAEMON_START, &client, err) < 0 ||
            make_session(options, session, &client, err) < 0)
                return -1;
        if (daemon_client_ask(&client, "session.create", session, &answer, &there) < 0) {
                *err = there;
                return -1;
        }
        json_decref(answer);
        return session_install(&client, session, packages, request->json, err);
}

static int report(const struct run_request *request, const struct remote_run *remote, const json_t *result,
                  struct err *err) {
        const json_t *error = json_object_get(result, "error");
        const char *traceback = json_string_value(json_object_get(error, "traceback"));
        int status = remote_run_report(remote, result, err);
        if (traceback && !remote->quiet && !remote->json)
                run_hint_print_in_session(request, remote->session, traceback);
        return status;
}

int exec_run(const struct session_options *options, const char *session, struct err *err) {
        struct socket_place place;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        struct daemon_request call = { .body = json_object() };
        struct input_feed feed = { 0 };
        json_t *result = NULL;
        const struct run_request *request = &options->run.request;
        struct remote_run remote = { .client = &client,
                                     .session = session,
                                     .json = request->json,
                                     .quiet = request->quiet,
                                     .show_value = request->language == RUN_PYTHON };
        int status = -1;
        remote.feed = &feed;
        if (make_body(options, session, call.body, &call, err) == 0 &&
            socket_place_choose(&options->run.where, true, &place, err) == 0 &&
            input_feed_init(&feed, &place, session, err) == 0 &&
            daemon_client_open(&place, DAEMON_START, &client, err) == 0 &&
            make_session(options, session, &client, err) == 0) {
                offer_input(request, &feed, call.body);
                status = remote_run_call(&remote, &call, &result, err);
        }
        input_feed_stop(&feed);
        if (status == DAEMON_CALL_LEFT)
                status = remote_run_leave(&remote);
        else if (status == DAEMON_CALL_ANSWERED)
                status = report(request, &remote, result, err);
        else if (remote.interrupted) /* cancelled while it waited for another run */
                status = terminal_fail_with(err, 128 + SIGINT);
        json_decref(result);
        json_decref(call.body);
        return status;
}

/* True if a session's kernel can run this code. */
static int check_code(struct run_request *request, struct err *err) {
        if (request->language == RUN_BASH && request->args[0])
                return err_set(err, ERR_USAGE,
                               "\"%.60s\" follows the shell code, which takes no arguments in a session; run a "
                               "command: -- sh -c CODE sh ARGUMENT...",
                               request->args[0]);
        if (request->language == RUN_OTHER)
                return err_set(err, ERR_USAGE,
                               "code in a session is Python or shell; run another interpreter as a command: -- %s FILE",
                               request->interpreter);
        return request->language == RUN_PYTHON ? source_text_decode(request, err) : 0;
}

int exec_run_or_install(const struct session_options *options, const char *session, struct err *err) {
        const struct run_request *request = &options->run.request;
        char *packages[PACKAGES_MAX + 1];
        bool has_network = request->network == RUN_NETWORK_FULL || request->n_hosts;
        _cleanup_free_ char *text = has_network ? NULL : text_of_install(request);
        if (!text || !read_pip(text, packages))
                return exec_run(options, session, err);
        int status = install_instead(options, session, packages, err);
        return status < 0 ? terminal_fail(err) : status;
}

int verb_exec(int argc, char **argv) {
        (void) argc;
        _cleanup_(session_options_release) struct session_options options = SESSION_OPTIONS_DEFAULT;
        struct option_rest rest;
        struct err err = { 0 };
        if (option_parse(&exec_option_table, &options, argv + 1, &rest, &err) < 0)
                return terminal_fail(&err);
        if (rest.help) {
                verb_print_help(stdout, verb_find("exec"));
                return 0;
        }
        const char *session = rest.operands[0];
        if (!session)
                return fail_without_session();
        if (run_options_check(&options.run, &err) < 0)
                return terminal_fail(&err);
        rest.operands++;
        int chosen = run_code_choose(&options.run, &rest, &err);
        if (chosen == RUN_CODE_NONE)
                return fail_without_session();
        if (chosen < 0 || check_code(&options.run.request, &err) < 0)
                return terminal_fail(&err);
        int status = exec_run_or_install(&options, session, &err);
        return status < 0 ? terminal_fail(&err) : status;
}
