#include "session/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/units.h"
#include "base/utf8.h"
#include "session/asker.h"
#include "session/harvest.h"
#include "session/session.h"
#include "session/spill.h"

enum { INLINE_MAX = 1 << 20, FEED_CHUNK = 256 << 10 };

struct run *run_make(struct session *session, json_t *request, uint64_t timeout_ms) {
        struct run *run = calloc(1, sizeof(*run));
        unsigned char random[16];
        if (!run || getrandom(random, sizeof(random), 0) != sizeof(random)) {
                free(run);
                return NULL;
        }
        for (size_t i = 0; i < sizeof(random); i++)
                (void) sprintf(run->id + 2 * i, "%02x", random[i]);
        run->session = session;
        run->request = json_incref(request);
        run->timeout_ms = timeout_ms;
        run->displays = json_array();
        return run;
}

void run_free(struct run *run) {
        if (!run)
                return;
        loop_timer_drop(&run->timer);
        while (run->askers) { /* those who were not told: there is nobody to tell */
                struct asker *asker = run->askers;
                run->askers = asker->next;
                asker->run = NULL;
        }
        json_decref(run->request);
        json_decref(run->displays);
        free(run);
}

void run_add_asker(struct run *run, struct asker *asker) {
        asker->run = run;
        asker->next = run->askers;
        run->askers = asker;
        if (asker->type->accepted)
                asker->type->accepted(asker, run->id);
        if (run->started)
                run_feed_asker(run, asker);
}

/* ---- while it is on ---- */

/* As much as the asker takes now, or all of it, which the journal's bounds keep small enough. */
static void feed(struct journal *journal, const char *run_id, struct asker *asker, bool all) {
        _cleanup_free_ char *chunk = NULL;
        while (asker->stream && (all || asker->type->wants_more(asker))) {
                struct journal_event event;
                if (journal_event(journal, run_id, asker->cursor, &event, NULL) < 0 ||
                    event.kind == JOURNAL_EVENT_RESULT)
                        return;
                if (!chunk && !(chunk = malloc(FEED_CHUNK)))
                        return;
                for (size_t at = 0; at < event.size;) {
                        size_t size = 0;
                        if (journal_read(journal, &event, at, chunk, FEED_CHUNK, &size, NULL) < 0 || size == 0)
                                break;
                        at += size;
                        const struct asker_output output = { event.kind == JOURNAL_EVENT_ERR, at == event.size,
                                                             event.number, chunk, size };
                        asker->type->output(asker, &output);
                }
                asker->cursor++;
        }
}

void run_tell_display(struct run *run, json_t *data) {
        for (struct asker *asker = run->askers; asker; asker = asker->next)
                if (asker->stream && asker->type->wants_more(asker)) /* the result has them all */
                        asker->type->display(asker, data);
}

void run_feed_asker(struct run *run, struct asker *asker) {
        struct kernel *kernel = run->session->kernel;
        if (kernel && kernel->journal)
                feed(kernel->journal, run->id, asker, false);
}

void run_feed(struct run *run) {
        for (struct asker *asker = run->askers; asker; asker = asker->next)
                run_feed_asker(run, asker);
}

/* ---- its result ---- */

static void set_text(json_t *object, const char *key, const char *bytes, size_t size) {
        /* Output may be any bytes; JSON wants UTF-8. */
        json_t *text = json_stringn(bytes ? bytes : "", size);
        if (!text) {
                char *clean = NULL;
                text = utf8_repair(bytes, size, &clean, &size) == 0 ? json_stringn(clean, size) : json_string("");
                free(clean);
        }
        json_object_set_new(object, key, text);
}

static json_t *error_of(const char *name, const char *message) {
        return json_pack("{s:s, s:s, s:s}", "name", name, "value", message, "message", message);
}

/* Status, exit code and error as the kernel told them, corrected by what we know better. */
static void judge(const struct run *run, json_t *result, json_t *outcome, uint64_t oom_kills) {
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
        json_object_set_new(result, "status", json_string(status));
        json_object_set_new(result, "exit_code", json_integer(exit_code));
        json_object_set_new(result, "timed_out", json_boolean(run->reason == RUN_REASON_TIMEOUT));
        json_object_set_new(result, "oom_killed", json_boolean(oom_kills > 0));
        json_object_set_new(result, "error", error ? error : json_null());
        json_t *value = json_object_get(outcome, "result");
        json_object_set(result, "result", value ? value : json_null());
}

/* Why a kernel that is gone is gone. */
static void judge_dead(const struct run *run, json_t *result, uint64_t oom_kills) {
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
        } else if (oom_kills > 0) {
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
        json_object_set_new(result, "status", json_string(status));
        json_object_set_new(result, "exit_code", json_integer(exit_code));
        json_object_set_new(result, "timed_out", json_boolean(run->reason == RUN_REASON_TIMEOUT));
        json_object_set_new(result, "oom_killed", json_boolean(oom_kills > 0));
        json_object_set_new(result, "error", error_of(name, message));
        json_object_set_new(result, "result", json_null());
        json_object_set_new(result, "variables_lost", json_true());
}

static void add_usage(json_t *result, const struct cgroup_usage *usage) {
        json_object_set_new(result, "usage",
                            json_pack("{s:I, s:I}", "cpu_ms", (json_int_t) (usage->cpu_us / 1000), "memory_peak_bytes",
                                      (json_int_t) usage->memory_peak_bytes));
}

/* A run must end in the journal, or no other could begin: what cannot be kept whole is kept without its large parts. */
static void write_down(struct journal *journal, json_t *result, const char *text) {
        static const char *const small[] = {
                "run_id", "status", "exit_code", "timed_out", "oom_killed", "duration_ms"
        };
        if (text && journal_end(journal, text, strlen(text), NULL) == 0)
                return;
        json_t *rest = json_object();
        for (size_t i = 0; i < ELEMENTS(small); i++)
                json_object_set(rest, small[i], json_object_get(result, small[i]));
        _cleanup_free_ char *less = json_dumps(rest, JSON_COMPACT);
        json_decref(rest);
        struct err err;
        if (!less || journal_end(journal, less, strlen(less), &err) < 0)
                daemon_log("a run's result cannot be written down: %s", less ? err.message : "out of memory");
}

static bool is_behind(const struct run *run, struct journal *journal, const struct asker *asker) {
        struct journal_event event;
        return journal_event(journal, run->id, asker->cursor, &event, NULL) == 0 && event.kind != JOURNAL_EVENT_RESULT;
}

/* One learns the end: the rest of the output, then the result. */
static void tell_end(struct run *run, struct journal *journal, struct asker *asker, json_t *result, const char *text) {
        if (asker->stream && text) {
                if (journal)
                        feed(journal, run->id, asker, false);
                if (journal && is_behind(run, journal, asker)) {
                        if (spill_run(asker, journal, run->id, text, strlen(text), NULL) == 0)
                                return;
                        feed(journal, run->id, asker, true);
                }
                asker_answer_text(asker, text, strlen(text), result);
                return;
        }
        json_t *answer = json_copy(result);
        run_add_output(journal, run->id, answer);
        asker_answer(asker, answer);
}

/* Takes the first of those who wait out of the list. */
static struct asker *next_asker(struct run *run) {
        struct asker *asker = run->askers;
        if (asker) {
                run->askers = asker->next;
                asker->run = NULL;
                asker->next = NULL;
        }
        return asker;
}

/* Writes the result down, then tells everybody who waits, each as it asked. */
static void conclude(struct run *run, json_t *result) {
        struct session *session = run->session;
        struct journal *journal = session->kernel ? session->kernel->journal : NULL;
        json_object_set_new(result, "duration_ms", json_integer((json_int_t) (loop_now_ms() - run->started_ms)));
        json_object_set_new(result, "run_id", json_string(run->id));
        json_object_set(result, "displays", run->displays);
        json_object_set_new(result, "artifacts", harvest_collect(session, run->id));
        if (session->variables_lost)
                json_object_set_new(result, "variables_lost", json_true());
        session->variables_lost = false;
        struct journal_run told = { 0 };
        bool is_open = journal && journal_open_run(journal);
        if (is_open)
                (void) journal_find(journal, run->id, &told, NULL);
        json_object_set_new(result, "stdout_cut_bytes", json_integer((json_int_t) told.cut[JOURNAL_OUT]));
        json_object_set_new(result, "stderr_cut_bytes", json_integer((json_int_t) told.cut[JOURNAL_ERR]));
        _cleanup_free_ char *text = json_dumps(result, JSON_COMPACT); /* once: for the journal and for who streams */
        if (is_open)
                write_down(journal, result, text);
        for (struct asker *asker; (asker = next_asker(run));)
                tell_end(run, journal, asker, result, text);
        json_decref(result);
}

void run_add_output(struct journal *journal, const char *run_id, json_t *answer) {
        static const char *const keys[] = { "stdout", "stderr" }, *const cut_keys[] = { "stdout_cut_bytes",
                                                                                        "stderr_cut_bytes" };
        for (int i = 0; i < JOURNAL_STREAMS; i++) {
                char *bytes = NULL;
                size_t size = 0;
                struct journal_run told = { 0 };
                if (journal && journal_find(journal, run_id, &told, NULL) == 0)
                        (void) journal_read_stream(journal, run_id, (enum journal_stream) i, INLINE_MAX, &bytes, &size,
                                                   NULL);
                set_text(answer, keys[i], bytes, size);
                uint64_t cut = told.cut[i] + told.bytes[i] - (size < told.bytes[i] ? size : told.bytes[i]);
                json_object_set_new(answer, cut_keys[i], json_integer((json_int_t) cut));
                free(bytes);
        }
}

void run_finish(struct run *run, json_t *outcome) {
        struct kernel *kernel = run->session->kernel;
        json_t *result = json_object();
        kernel_measure(kernel);
        judge(run, result, outcome, kernel->usage.oom_kills);
        add_usage(result, &kernel->usage);
        conclude(run, result);
}

void run_finish_dead(struct run *run) {
        const struct cgroup_usage *usage = &run->session->kernel->usage;
        json_t *result = json_object();
        judge_dead(run, result, usage->oom_kills);
        add_usage(result, usage);
        conclude(run, result);
}

void run_fail(struct run *run, const struct err *err) {
        for (struct asker *asker; (asker = next_asker(run));)
                asker_refuse(asker, err);
}
