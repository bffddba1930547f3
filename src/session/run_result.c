#include "session/run_result.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/units.h"
#include "kernel/kernel_reply.h"
#include "session/session.h"

static void run_result_put_text(struct json_writer *text, const char *value) {
        json_writer_put_string(text, value, strlen(value));
}

enum { DISK_EXIT_CODE = 128 + SIGXFSZ }; /* as of a program that makes a file larger than it may */

static bool is_about_disk(const struct run *run) {
        return run->reason == RUN_REASON_DISK || run->reason == RUN_REASON_RESERVE;
}

static struct json_writer error_of(const char *name, const char *message) {
        struct json_writer text = { 0 };
        json_writer_put_literal(&text, "{\"name\":");
        run_result_put_text(&text, name);
        json_writer_put_literal(&text, ",\"value\":");
        run_result_put_text(&text, message);
        json_writer_put_literal(&text, ",\"message\":");
        run_result_put_text(&text, message);
        json_writer_put_literal(&text, "}");
        return text;
}

/* The kernel refused the request itself (no such context, …), with a text. */
static struct json_writer refusal_of(const struct kernel_reply *reply) {
        json_t *json = kernel_reply_parse(reply);
        const char *message = json_string_value(json_object_get(json, "error"));
        struct json_writer text = error_of("request_refused", message ? message : "the kernel refused the request");
        json_decref(json);
        return text;
}

void run_result_judge(const struct run *run, const struct kernel_reply *reply, struct run_result *ret_result) {
        int64_t exit_code = kernel_reply_number(reply, KERNEL_FIELD_EXIT_CODE);
        const char *status = "error"; /* also for an unknown status */
        if (kernel_reply_is(reply, KERNEL_FIELD_STATUS, "ok") ||
            (kernel_reply_is(reply, KERNEL_FIELD_STATUS, "exit") && exit_code == 0))
                status = "ok";
        else if (kernel_reply_is(reply, KERNEL_FIELD_STATUS, "interrupted"))
                status = "interrupted";
        struct run_result result = {
                .run_id = run->id,
                .error = reply->fields[KERNEL_FIELD_ERROR].text,
                .error_size = reply->fields[KERNEL_FIELD_ERROR].size,
                .value = reply->fields[KERNEL_FIELD_RESULT].text,
                .value_size = reply->fields[KERNEL_FIELD_RESULT].size,
                .displays = &run->displays.text,
                .execution_count = kernel_reply_number(reply, KERNEL_FIELD_EXECUTION_COUNT),
        };
        if (kernel_reply_is_string(reply, KERNEL_FIELD_ERROR)) {
                result.own_error = refusal_of(reply);
                exit_code = 1;
        }
        if (run->reason == RUN_REASON_TIMEOUT) {
                char message[200];
                (void) snprintf(message, sizeof(message),
                                "time limit %g s reached: the run was interrupted; variables are kept; raise the "
                                "timeout or do less in one run",
                                (double) run->timeout_ms / 1000);
                status = "timeout";
                exit_code = 124;
                result.timed_out = true;
                json_writer_release(&result.own_error);
                result.own_error = error_of("timeout", message);
        } else if (is_about_disk(run)) {
                char message[500];
                (void) snprintf(message, sizeof(message), "%s; the run was interrupted, variables are kept", run->why);
                status = "disk";
                exit_code = DISK_EXIT_CODE;
                json_writer_release(&result.own_error);
                result.own_error = error_of("disk_limit", message);
        } else if (run->reason == RUN_REASON_INTERRUPT && strcmp(status, "interrupted") == 0)
                exit_code = 130;
        result.status = status;
        result.exit_code = exit_code;
        *ret_result = result;
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
                                "killed, variables are lost, files are kept",
                                (double) run->timeout_ms / 1000);
        } else if (is_about_disk(run)) {
                status = "disk";
                name = "disk_limit";
                exit_code = DISK_EXIT_CODE;
                (void) snprintf(message, sizeof(message),
                                "%s; the code did not react to the interrupt: the kernel was killed, variables are "
                                "lost, files are kept",
                                run->why);
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
                (void) snprintf(message, sizeof(message), "the session was removed while the run was on");
        } else if (run->reason == RUN_REASON_RESTARTED) {
                name = "restarted";
                (void) snprintf(
                        message, sizeof(message),
                        "the run was killed, or its session restarted, from outside: variables are lost, files are "
                        "kept");
        } else if (kernel->host_trouble) {
                name = "daemon_trouble";
                (void) snprintf(message, sizeof(message),
                                "%s: the kernel was ended, which is no fault of its code; variables are lost, files "
                                "are kept",
                                kernel->host_trouble);
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
                                "the kernel was killed by signal %d (%s): variables are lost, files are kept", number,
                                strsignal(number));
        } else
                (void) snprintf(message, sizeof(message), "the box died%s: variables are lost, files are kept",
                                kernel->end_cause == KERNEL_END_PROTOCOL
                                        ? " because the code in it broke the kernel's protocol"
                                        : "");
        *ret_result = (struct run_result) {
                .run_id = run->id,
                .status = status,
                .exit_code = exit_code,
                .timed_out = run->reason == RUN_REASON_TIMEOUT,
                .variables_lost = true,
                .own_error = error_of(name, message),
                .displays = &run->displays.text,
        };
}

void run_result_judge_lost(const char *run_id, const char *status, const char *name, const char *message,
                           struct run_result *ret_result) {
        *ret_result = (struct run_result) {
                .run_id = run_id,
                .status = status,
                .exit_code = strcmp(status, "killed") == 0 ? 137 : 1,
                .own_error = error_of(name, message),
        };
}

void run_result_release(struct run_result *result) {
        json_writer_release(&result->own_error);
        json_writer_release(&result->artifacts);
        json_decref(result->wake_report);
        result->wake_report = NULL;
}

static void put_or_null(struct json_writer *text, const char *bytes, size_t size) {
        if (size > 0)
                json_writer_put(text, bytes, size);
        else
                json_writer_put_literal(text, "null");
}

static void put_usage(const struct run_result *result, struct json_writer *text) {
        json_writer_put_literal(text, ",\"usage\":{\"cpu_ms\":");
        json_writer_put_number(text, (int64_t) (result->usage.cpu_us / 1000));
        json_writer_put_literal(text, ",\"memory_peak_bytes\":");
        json_writer_put_number(text, (int64_t) result->usage.memory_peak_bytes);
        json_writer_put_literal(text, "}");
}

void run_result_put_cut(const struct run_result *result, struct json_writer *text) {
        static const char why[] = "the disk was full when the run ended: what it returned and displayed, its error and "
                                  "the list of its artifacts could not be kept; its files are there";
        bool is_good = strcmp(result->status, "ok") == 0;
        json_writer_put_literal(text, ",\"warning\":");
        run_result_put_text(text, why);
        put_usage(result, text);
        json_writer_put_literal(text, ",\"error\":");
        if (is_good)
                json_writer_put_literal(text, "null");
        else {
                json_writer_put_literal(text, "{\"name\":\"result_lost\",\"value\":");
                run_result_put_text(text, why);
                json_writer_put_literal(text, ",\"message\":");
                run_result_put_text(text, why);
                json_writer_put_literal(text, "}");
        }
        json_writer_put_literal(text, ",\"result\":null,\"displays\":[],\"artifacts\":[]}");
}

void run_result_write(const struct run_result *result, struct json_writer *text, size_t *ret_small) {
        json_writer_put_literal(text, "{\"run_id\":");
        run_result_put_text(text, result->run_id);
        json_writer_put_literal(text, ",\"status\":");
        run_result_put_text(text, result->status);
        json_writer_put_literal(text, ",\"exit_code\":");
        json_writer_put_number(text, result->exit_code);
        json_writer_put_literal(text, ",\"timed_out\":");
        json_writer_put_bool(text, result->timed_out);
        json_writer_put_literal(text, ",\"oom_killed\":");
        json_writer_put_bool(text, result->oom_killed);
        json_writer_put_literal(text, ",\"duration_ms\":");
        json_writer_put_number(text, (int64_t) result->duration_ms);
        if (result->execution_count > 0) {
                json_writer_put_literal(text, ",\"execution_count\":");
                json_writer_put_number(text, result->execution_count);
        }
        if (result->variables_lost)
                json_writer_put_literal(text, ",\"variables_lost\":true");
        *ret_small = text->size;
        if (result->wake_report) {
                json_writer_put_literal(text, ",\"wake\":");
                json_writer_put_value(text, result->wake_report);
        }
        if (*result->warning) {
                json_writer_put_literal(text, ",\"warning\":");
                run_result_put_text(text, result->warning);
        }
        put_usage(result, text);
        json_writer_put_literal(text, ",\"error\":");
        if (result->own_error.size > 0)
                json_writer_put(text, result->own_error.bytes, result->own_error.size);
        else
                put_or_null(text, result->error, result->error_size);
        json_writer_put_literal(text, ",\"result\":");
        put_or_null(text, result->value, result->value_size);
        json_writer_put_literal(text, ",\"displays\":[");
        if (result->displays && !result->displays->failed)
                json_writer_put(text, result->displays->bytes, result->displays->size);
        json_writer_put_literal(text, "],\"artifacts\":");
        if (result->artifacts.size > 0)
                json_writer_put(text, result->artifacts.bytes, result->artifacts.size);
        else
                json_writer_put_literal(text, "[]");
}
