/* A run goes to the daemon only if nobody could tell the difference but by the clock. Where that is not certain, the
 * box is made here: that is always right, and only slower.
 *
 * An ephemeral run has no effect but its output and its artifacts. So as long as nothing was printed, any failure of
 * the daemon is answered by running the same code here. */
#include "cli/run_warm.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "box/spec.h"
#include "cli/attend.h"
#include "cli/limit_text.h"
#include "cli/session_request.h"
#include "cli/terminal.h"

enum { INLINE_MAX = 64 << 10 };

/* A kernel has no standard input, no argument vector and no file of its own, and its process goes on after the code:
 * code that has one of these words may care. */
static const char *const telling_words[] = {
        "input",    "stdin",    "subprocess",   "system",     "popen",           "spawn",
        "exec",     "fork",     "getpass",      "fdopen",     "open(0",          "read(0",
        "/dev/",    "pdb",      "breakpoint",   "pty",        "select",          "termios",
        "__file__", "argv",     "__import__",   "importlib",  "runpy",           "inspect",
        "hread",    "Timer",    "atexit",       "concurrent", "multiprocessing", "__del__",
        "weakref",  "finalize", "signal",       "getppid",    "ctypes",          "await",
        "gc.",      "sys.path", "__builtins__", "globals",    "joblib",          "resource",
};

static bool code_may_tell(const char *code) {
        for (size_t i = 0; i < ELEMENTS(telling_words); i++)
                if (strstr(code, telling_words[i]))
                        return true;
        return false;
}

static bool limits_fit(const struct limits *limits) {
        return limits->disk_files == LIMITS_DEFAULT.disk_files; /* the wire has no field for it */
}

static bool fits(const struct run_options *options) {
        const struct run_request *request = &options->request;
        return !options->no_daemon && request->language == RUN_PYTHON && strcmp(request->image, "host") == 0 &&
               !request->args[0] && !request->json && !request->verbose && !request->workspace && !request->data &&
               !request->output_dir && request->n_mounts == 0 && request->n_env == 0 && !request->allow_weaker &&
               request->network == RUN_NETWORK_NONE && request->n_hosts == 0 &&
               limits_fit(&request->limits) && !code_may_tell(request->code);
}

static json_t *make_body(const struct run_options *options, struct daemon_request *call) {
        const struct run_request *request = &options->request;
        json_t *body = json_pack("{s:s, s:b, s:b, s:b, s:I}", "op", "execute", "ephemeral", 1, "stream", 1,
                                 "cancel_on_disconnect", 1, "timeout_ms", (json_int_t) request->limits.timeout_ms);
        struct session_options creation = { .run = *options };
        if (!body || session_request_put(&creation, body, NULL) < 0) {
                json_decref(body);
                return NULL;
        }
        json_t *code = request->code_size <= INLINE_MAX ? json_stringn(request->code, request->code_size) : NULL;
        if (code) {
                (void) json_object_set_new(body, "code", code);
                return body;
        }
        (void) json_object_set_new(body, "code_follows", json_true());
        call->follows = request->code;
        call->follows_size = request->code_size;
        return body;
}

/* ---- what came of it, in the words of a run that was made here ---- */

static void say(const char *text) {
        (void) fprintf(stderr, "glovebox: %s\n", text);
}

/* The kernel calls the code "<cell 1>"; here it has a name. */
static void print_traceback(const char *text, const char *code_name) {
        static const char cell[] = "  File \"<cell 1>\"";
        while (*text) {
                size_t length = strcspn(text, "\n");
                if (strncmp(text, cell, sizeof(cell) - 1) == 0) {
                        (void) fprintf(stderr, "  File \"" BOX_CODE_DIR "/%s\"", code_name);
                        text += sizeof(cell) - 1;
                        length -= sizeof(cell) - 1;
                }
                (void) fprintf(stderr, "%.*s\n", (int) length, text);
                text += length + (text[length] == '\n');
        }
}

static void report_end(const struct run_request *request, const json_t *result) {
        const char *status = json_string_value(json_object_get(result, "status"));
        const json_t *error = json_object_get(result, "error");
        const char *traceback = json_string_value(json_object_get(error, "traceback"));
        char text[600];
        if (status && strcmp(status, "timeout") == 0) {
                limit_text_timeout(text, sizeof(text), request->limits.timeout_ms);
                say(text);
        } else if (status && strcmp(status, "oom") == 0) {
                json_int_t peak =
                        json_integer_value(json_object_get(json_object_get(result, "usage"), "memory_peak_bytes"));
                limit_text_memory(text, sizeof(text), request->limits.memory_bytes,
                                  peak > 0 ? (uint64_t) peak : request->limits.memory_bytes);
                say(text);
        } else if (traceback)
                print_traceback(traceback, request->code_name);
}

static int report(const struct run_request *request, const struct attendance *attendance, json_t *result) {
        report_end(request, result);
        /* what is left to say is the same as for a session: cut output, artifacts */
        (void) json_object_del(result, "error");
        (void) json_object_del(result, "variables_lost");
        struct err err;
        return attend_report(attendance, result, &err);
}

int run_warm(const struct run_options *options) {
        struct socket_place place;
        if (!fits(options) || socket_place_choose(&options->where, true, &place, NULL) < 0)
                return RUN_WARM_NOT_HERE;
        _cleanup_(daemon_client_close) struct daemon_client client = DAEMON_CLIENT_NONE;
        if (daemon_client_connect(place.path, &client, NULL) < 0)
                return RUN_WARM_NOT_HERE;
        struct daemon_request call = { 0 };
        call.body = make_body(options, &call);
        if (!call.body)
                return RUN_WARM_NOT_HERE;
        struct attendance attendance = { .client = &client, .quiet = options->request.quiet };
        json_t *result = NULL;
        struct err err = { 0 };
        int code = attend_call(&attendance, &call, &result, &err);
        json_decref(call.body);
        if (code == DAEMON_CALL_LEFT)
                return attend_leave(&attendance);
        if (code < 0)
                return attendance.output_shown ? terminal_fail(&err) : RUN_WARM_NOT_HERE;
        int status = report(&options->request, &attendance, result);
        json_decref(result);
        return status;
}
