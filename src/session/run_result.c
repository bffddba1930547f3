#include "session/run_result.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/units.h"
#include "session/session.h"

static json_t *error_of(const char *name, const char *message) {
        return json_pack("{s:s, s:s, s:s}", "name", name, "value", message, "message", message);
}

void run_result_judge(const struct run *run, const json_t *outcome, struct run_result *ret_result) {
        const char *told = json_string_value(json_object_get(outcome, "status"));
        json_int_t exit_code = json_integer_value(json_object_get(outcome, "exit_code"));
        const char *status = "error"; /* for any word that we do not know, too */
        if (told && (strcmp(told, "ok") == 0 || (strcmp(told, "exit") == 0 && exit_code == 0)))
                status = "ok";
        else if (told && strcmp(told, "interrupted") == 0)
                status = "interrupted";
        json_t *error = json_incref(json_object_get(outcome, "error"));
        if (json_is_string(error)) { /* the kernel refused the request itself: no such context, … */
                json_t *refusal = error_of("request_refused", json_string_value(error));
                json_decref(error);
                error = refusal;
                exit_code = 1;
        }
        if (run->reason == RUN_REASON_TIMEOUT) {
                char message[200];
                (void) snprintf(message, sizeof(message),
                                "time limit %g s reached: the run was interrupted; variables are kept; raise the "
                                "timeout or do less in one run", (double) run->timeout_ms / 1000);
                status = "timeout";
                exit_code = 124;
                json_decref(error);
                error = error_of("timeout", message);
        } else if (run->reason == RUN_REASON_INTERRUPT && strcmp(status, "interrupted") == 0)
                exit_code = 130;
        *ret_result = (struct run_result) {
                .run_id = run->id,
                .status = status,
                .exit_code = exit_code,
                .timed_out = run->reason == RUN_REASON_TIMEOUT,
                .error = error,
                .value = json_incref(json_object_get(outcome, "result")),
                .displays = run->displays,
        };
}

/* ---- the frequent kind, without a parser ---- */

struct scan {
        const char *at, *end;
        bool good;
};

static void expect(struct scan *scan, const char *bytes, size_t size) {
        scan->good = scan->good && (size_t) (scan->end - scan->at) >= size && memcmp(scan->at, bytes, size) == 0;
        if (scan->good)
                scan->at += size;
}
#define expect_literal(scan, literal) expect(scan, "" literal, sizeof(literal) - 1)

static bool is_next(const struct scan *scan, char byte) {
        return scan->good && scan->at < scan->end && *scan->at == byte;
}

static void skip_digits(struct scan *scan) {
        enum { DIGITS_MAX = 18 };
        const char *from = scan->at;
        while (scan->good && scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
                scan->at++;
        scan->good = scan->good && scan->at > from && scan->at - from <= DIGITS_MAX;
}

/* Up to a quote. Only what stands for itself in JSON: no escapes, nothing beyond ASCII. */
static void skip_plain_characters(struct scan *scan) {
        while (scan->good && scan->at < scan->end && *scan->at >= ' ' && *scan->at <= '~' && *scan->at != '"' &&
               *scan->at != '\\')
                scan->at++;
}

bool run_result_judge_plain(const struct run *run, const char *payload, size_t size, struct run_result *ret_result) {
        enum { PLAIN_MAX = 4096 };
        if (run->reason != RUN_REASON_NONE || size > PLAIN_MAX)
                return false;
        struct scan scan = { payload, payload + size, true };
        expect_literal(&scan, "{\"id\":\"");
        expect(&scan, run->id, strlen(run->id));
        expect_literal(&scan, "\",\"status\":\"ok\",\"exit_code\":0,\"execution_count\":");
        skip_digits(&scan);
        expect_literal(&scan, ",\"result\":");
        const char *value = scan.at;
        if (is_next(&scan, '{')) {
                expect_literal(&scan, "{\"text/plain\":\"");
                skip_plain_characters(&scan);
                expect_literal(&scan, "\"}");
        } else
                expect_literal(&scan, "null");
        const char *value_end = scan.at;
        expect_literal(&scan, ",\"displays\":");
        skip_digits(&scan);
        expect_literal(&scan, ",\"error\":null,\"figures\":[]}");
        if (!scan.good || scan.at != scan.end)
                return false;
        *ret_result = (struct run_result) {
                .run_id = run->id,
                .status = "ok",
                .plain = value,
                .plain_size = (size_t) (value_end - value),
                .displays = run->displays,
        };
        return true;
}

/* ---- a kernel that died ---- */

void run_result_judge_dead(const struct run *run, struct run_result *ret_result) {
        const struct kernel *kernel = run->session->kernel;
        char message[600], limit[32];
        const char *status = "killed", *name = "kernel_died";
        int exit_code = 137;
        if (run->reason == RUN_REASON_TIMEOUT) {
                status = name = "timeout";
                exit_code = 124;
                (void) snprintf(message, sizeof(message),
                                "time limit %g s reached and the code did not react to the interrupt: the kernel was "
                                "killed, variables are lost, files are kept", (double) run->timeout_ms / 1000);
        } else if (kernel->usage.oom_kills > 0) {
                status = "oom";
                name = "memory_limit";
                (void) snprintf(message, sizeof(message),
                                "memory limit %s reached: the kernel was stopped, variables are lost, files are kept; "
                                "raise the memory limit or process the data in chunks",
                                units_format_bytes(run->session->row.limits.memory_bytes, limit));
        } else if (run->reason == RUN_REASON_INTERRUPT) {
                status = "interrupted";
                name = "interrupted";
                exit_code = 130;
                (void) snprintf(message, sizeof(message),
                                "the code did not react to the interrupt: the kernel was killed, "
                                "variables are lost, files are kept");
        } else if (run->reason == RUN_REASON_REMOVED) {
                name = "removed";
                (void) snprintf(message, sizeof(message), "the session was removed or restarted while the run was on");
        } else if (kernel->exited && WIFEXITED(kernel->wait_status)) {
                status = "error";
                exit_code = WEXITSTATUS(kernel->wait_status);
                name = "kernel_exited";
                (void) snprintf(
                        message, sizeof(message),
                        "the code ended its own process (os._exit or the like) with status %d: variables are lost, "
                        "files are kept",
                        exit_code);
        } else if (kernel->exited) {
                int number = WTERMSIG(kernel->wait_status);
                exit_code = 128 + number;
                name = number == SIGSEGV ? "segmentation_fault" : "kernel_killed";
                (void) snprintf(message, sizeof(message),
                                "the kernel was killed by signal %d (%s): variables are lost, files "
                                "are kept",
                                number, strsignal(number));
        } else
                (void) snprintf(message, sizeof(message), "the box died%s: variables are lost, files are kept",
                                kernel->broke_protocol ? " because the code in it broke the kernel's protocol" : "");
        *ret_result = (struct run_result) {
                .run_id = run->id,
                .status = status,
                .exit_code = exit_code,
                .timed_out = run->reason == RUN_REASON_TIMEOUT,
                .variables_lost = true,
                .error = error_of(name, message),
                .displays = run->displays,
        };
}

void run_result_judge_unsent(const struct run *run, struct run_result *ret_result) {
        *ret_result = (struct run_result) {
                .run_id = run->id,
                .status = "error",
                .exit_code = 1,
                .error = error_of("not_run", "the daemon died before it had handed the code to the kernel: nothing was "
                                             "run, variables are kept; run it again"),
                .displays = run->displays,
        };
}

void run_result_release(struct run_result *result) {
        json_decref(result->error);
        json_decref(result->value);
        json_decref(result->artifacts);
        result->error = result->value = result->artifacts = NULL;
}

static void put_text(struct json_text *text, const char *value) {
        json_text_put_string(text, value, strlen(value));
}

void run_result_write(const struct run_result *result, struct json_text *text, size_t *ret_small) {
        json_text_put_literal(text, "{\"run_id\":");
        put_text(text, result->run_id);
        json_text_put_literal(text, ",\"status\":");
        put_text(text, result->status);
        json_text_put_literal(text, ",\"exit_code\":");
        json_text_put_number(text, result->exit_code);
        json_text_put_literal(text, ",\"timed_out\":");
        json_text_put_bool(text, result->timed_out);
        json_text_put_literal(text, ",\"oom_killed\":");
        json_text_put_bool(text, result->oom_killed);
        json_text_put_literal(text, ",\"duration_ms\":");
        json_text_put_number(text, (int64_t) result->duration_ms);
        *ret_small = text->size;
        if (result->variables_lost)
                json_text_put_literal(text, ",\"variables_lost\":true");
        json_text_put_literal(text, ",\"usage\":{\"cpu_ms\":");
        json_text_put_number(text, (int64_t) (result->usage.cpu_us / 1000));
        json_text_put_literal(text, ",\"memory_peak_bytes\":");
        json_text_put_number(text, (int64_t) result->usage.memory_peak_bytes);
        json_text_put_literal(text, "},\"error\":");
        json_text_put_value(text, result->error);
        json_text_put_literal(text, ",\"result\":");
        if (result->plain)
                json_text_put(text, result->plain, result->plain_size);
        else
                json_text_put_value(text, result->value);
        json_text_put_literal(text, ",\"displays\":");
        json_text_put_value(text, result->displays);
        json_text_put_literal(text, ",\"artifacts\":");
        json_text_put_value(text, result->artifacts);
}
