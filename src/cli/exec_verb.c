/* `glovebox exec SESSION ...`: code or a command in a session that stays. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/attend.h"
#include "cli/run_code.h"
#include "cli/session_request.h"
#include "cli/terminal.h"
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

static int put_code(const struct run_request *request, json_t *body, struct daemon_request *call) {
        json_t *code = request->code_size <= INLINE_MAX ? json_stringn(request->code, request->code_size) : NULL;
        (void) json_object_set_new(body, "op", json_string("execute"));
        if (code)
                return json_object_set_new(body, "code", code);
        call->follows = request->code;
        call->follows_size = request->code_size;
        return json_object_set_new(body, "code_follows", json_true());
}

static int put_command(const struct run_request *request, json_t *body, struct daemon_request *call, struct err *err) {
        (void) json_object_set_new(body, "op", json_string("command"));
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
        if (request->stdin_is_code)
                return 0;
        call->with_input = true;
        call->input_fd = STDIN_FILENO;
        return json_object_set_new(body, "input_follows", json_true());
}

static int make_body(const struct session_options *options, const char *session, json_t *body,
                     struct daemon_request *call, struct err *err) {
        const struct run_request *request = &options->run.request;
        if (json_object_set_new(body, "session", json_string(session)) < 0)
                return err_set(err, ERR_USAGE, "the session's name is not valid UTF-8; use letters, digits and . _ -");
        (void) json_object_set_new(body, "stream", json_boolean(!request->json));
        if (request->limits.timeout_ms)
                (void) json_object_set_new(body, "timeout_ms", json_integer((json_int_t) request->limits.timeout_ms));
        return request->language == RUN_PYTHON ? put_code(request, body, call) : put_command(request, body, call, err);
}

/* With options the session is made first, to hear whether it has them: one that is there already stays as it was
 * made, which somebody who asked for more memory must be told. */
static int make_session(const struct session_options *options, const char *session, struct daemon_client *client,
                        struct err *err) {
        struct session_options creation = *options;
        creation.run.request.limits.timeout_ms = 0; /* it is this run's, not the session's */
        json_t *body = json_object(), *answer = NULL;
        const struct daemon_request call = { .body = body };
        int code = session_request_put(&creation, body, err);
        if (code == 0 && json_object_size(body) > 0) {
                (void) json_object_set_new(body, "op", json_string("session.create"));
                (void) json_object_set_new(body, "session", json_string(session));
                code = daemon_client_call(client, &call, &answer, err);
                if (code == 0 && !options->run.request.quiet)
                        session_request_warn(session, answer);
        }
        json_decref(answer);
        json_decref(body);
        return code;
}

static int execute(const struct session_options *options, const char *session, struct err *err) {
        struct socket_place place;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        struct daemon_request call = { .body = json_object() };
        json_t *result = NULL;
        const struct run_request *request = &options->run.request;
        struct attendance attendance = { .client = &client,
                                         .session = session,
                                         .json = request->json,
                                         .quiet = request->quiet,
                                         .show_value = request->language == RUN_PYTHON };
        int status = -1;
        if (make_body(options, session, call.body, &call, err) == 0 &&
            socket_place_choose(&options->run.where, true, &place, err) == 0 &&
            daemon_client_open(&place, DAEMON_START, &client, err) == 0 &&
            make_session(options, session, &client, err) == 0)
                status = attend_call(&attendance, &call, &result, err);
        if (status == DAEMON_CALL_LEFT)
                status = attend_leave(&attendance);
        else if (status == DAEMON_CALL_ANSWERED)
                status = attend_report(&attendance, result, err);
        json_decref(result);
        json_decref(call.body);
        return status;
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
        const struct run_request *request = &options.run.request;
        if (chosen == RUN_CODE_CHOSEN && request->language != RUN_COMMAND && request->args[0])
                chosen = err_set(&err, ERR_USAGE,
                                 "\"%.60s\" follows the code, and code in a session takes no arguments; set variables "
                                 "in it instead, or run a command: -- COMMAND ARGUMENT...",
                                 request->args[0]);
        int status = chosen < 0 ? -1 : execute(&options, session, &err);
        return status < 0 ? terminal_fail(&err) : status;
}
