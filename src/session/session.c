#include "session/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/remove_tree.h"
#include "box/spec.h"
#include "session/artifact_collect.h"
#include "session/caller.h"
#include "session/custody.h"
#include "session/held_back.h"
#include "session/install.h"
#include "session/kernel_order.h"
#include "session/kernel_pool.h"
#include "session/network.h"
#include "session/program.h"
#include "session/recovery.h"
#include "session/serve_options.h"
#include "session/sleep_report.h"
#include "session/waiting.h"
#include "store/packages.h"
#include "store/session_file.h"
#include "store/tenant_file.h"

#define SLEEP_PATH "/run/session/" SESSION_SLEEP_FILE /* as the kernel sees it */

/* With the files that lie in memory, and would go with the box. */
#define SLEEP_REQUEST "\"path\":\"" SLEEP_PATH "\",\"exit\":true,\"files\":[\"/tmp\",\"" BOX_HOME "\",\"/dev/shm\"]"

static const struct kernel_listener listener;

/* ---- the kernel ---- */

/* Code in the box writes there, too. */
static const char *kernel_directory(const struct session *session, char buffer[static 1100]) {
        (void) snprintf(buffer, 1100, "%s/kernel", session->state_dir);
        return buffer;
}

bool session_has_sleep_file(const struct session *session) {
        char directory[1100];
        return !session->ephemeral && tenant_file_exists(kernel_directory(session, directory), SESSION_SLEEP_FILE);
}

void session_remove_sleep_file(const struct session *session) {
        char directory[1100];
        if (!session->ephemeral)
                tenant_file_remove(kernel_directory(session, directory), SESSION_SLEEP_FILE);
}

void session_fail_runs(struct session *session, const struct err *err) {
        if (session->is_program)
                program_fail(session, err);
        while (session->runs) {
                struct run *run = session->runs;
                session->runs = run->next;
                run_fail(run, err);
                run_free(run);
        }
}

/* From its first kernel on, so that a living one sees what is installed later. */
static void show_packages(const struct session *session, struct maker_request *request) {
        int code = packages_make_directory(session->state_dir);
        if (code < 0) {
                daemon_log("session %s: no packages can be installed: %s", session->row.name, strerror(-code));
                return;
        }
        (void) snprintf(request->packages, sizeof(request->packages), "%.1000s", session->state_dir);
        request->fresh |= packages_cover_image(session->state_dir);
}

/* The box of a kernel from the pool is shown what its caller asked for. */
static int session_attach(struct session *session, struct err *err) {
        struct kernel *kernel = session->kernel;
        struct maker_request request;
        kernel_order_fill(&session->row, &request);
        request.attach = request.is_program = true;
        request.by_owner = session->is_program;
        request.box_is_leased = kernel->fds[MAKER_LEASE] >= 0;
        request.box_uid = kernel->host_uid;
        request.ephemeral = !*session->row.workspace;
        memcpy(request.kernel_id, kernel->id, sizeof(request.kernel_id));
        (void) snprintf(request.workspace, sizeof(request.workspace), "%s", session->row.workspace);
        kernel_move(kernel, KERNEL_ATTACHING);
        return kernel_order_place(session->manager, &request, session->row.owner, err);
}

static bool may_take_from_pool(const struct session *session) {
        return session->ephemeral && !session->granted && !session->wants_listener && !session->needs_new_box;
}

static bool take_from_pool(struct session *session) {
        struct err err;
        if (!may_take_from_pool(session))
                return false;
        session->kernel = kernel_pool_take(session->manager, &session->row, session->light);
        if (!session->kernel)
                return false;
        session->kernel->listener = &listener;
        session->kernel->owner = session;
        session->from_pool = true;
        if (kernel_pool_limit(session->manager, session->kernel, &session->row.limits, &err) < 0 ||
            (kernel_pool_has_to_show(&session->row) && session_attach(session, &err) < 0)) {
                kernel_free(session->kernel);
                session->kernel = NULL;
                session->from_pool = false;
        }
        kernel_pool_refill_soon(session->manager);
        return session->from_pool;
}

void session_attached(struct session *session, struct maker_reply *reply) {
        struct err err;
        struct kernel *kernel = session->kernel;
        int code = kernel_attached(kernel, reply, &err);
        fd_close(&reply->fds[MAKER_WORKSPACE]);
        if (session_is_going(session))
                return; /* it was killed, and its end is told */
        if (code < 0) { /* a new box says why, if that fails, too */
                daemon_log("a box from the pool was not used: %s", err.message);
                session->kernel = NULL;
                session->from_pool = false;
                session->needs_new_box = true;
                kernel_free(kernel);
        }
        session_advance(session);
}

static void order_kernel(struct session *session) {
        struct err err;
        struct maker_request request;
        if (take_from_pool(session))
                return;
        struct egress_rules *rules = NULL;
        kernel_order_fill(&session->row, &request);
        request.ephemeral = session->ephemeral && !*session->row.workspace;
        request.is_program = session->ephemeral && !session->helps;
        request.by_owner = session->is_program;
        if (!request.ephemeral && !request.is_program)
                (void) snprintf(request.state_dir, sizeof(request.state_dir), "%.1000s/kernel", session->state_dir);
        (void) snprintf(request.workspace, sizeof(request.workspace), "%s", session->workspace);
        request.workspace_is_ours = !*session->row.workspace;
        request.light = session->light;
        if (session->helps)
                install_fill_request(session->helps, &request);
        else if (!session->ephemeral)
                show_packages(session, &request);
        if (network_rules_of(session, &rules, &err) < 0) {
                session_fail_runs(session, &err);
                return;
        }
        request.network = rules != NULL || session->wants_listener;
        if (!request.ephemeral && !request.is_program &&
            ((mkdir(session->state_dir, 0700) < 0 && errno != EEXIST) ||
             (mkdir(request.state_dir, 0700) < 0 && errno != EEXIST)))
                (void) err_sys(&err, errno, "making %s", request.state_dir);
        else if (kernel_order_name(session->manager, &request, &err) == 0) {
                session->kernel =
                        kernel_make(session->manager->loop, &session->manager->host, &listener, session, &request);
                /* The journal is the session's, not the kernel's: it goes on over restarts. */
                if (session->kernel) {
                        (void) snprintf(session->kernel->state_dir, sizeof(session->kernel->state_dir), "%s",
                                        session->state_dir);
                        session->kernel->rules = take_ptr(rules);
                }
                if (session->kernel && kernel_order_place(session->manager, &request, session->row.owner, &err) == 0)
                        return;
                if (!session->kernel)
                        (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        free(rules);
        kernel_free(session->kernel);
        session->kernel = NULL;
        session_fail_runs(session, &err);
}

static void on_ready(struct kernel *kernel) {
        struct session *session = kernel->owner;
        session_move(session, SESSION_IDLE);
        if (!session->ephemeral)
                recovery_settle(session, kernel->journal); /* whatever the last one left open */
        custody_put(session);
        session_advance(session);
}

static void on_failed(struct kernel *kernel, const struct err *err) {
        struct session *session = kernel->owner;
        session->kernel = NULL;
        kernel_free(kernel);
        session_fail_runs(session, err);
        if (session_is_going(session) || session->ephemeral)
                session_remove(session, session->keep_files);
}

static void on_output(struct kernel *kernel) {
        struct session *session = kernel->owner;
        if (session->runs && session->runs->started)
                run_feed(session->runs);
}

static void answer_caller(struct session *session, json_t *answer, const struct err *err) {
        struct caller *caller = session->caller;
        session->caller = NULL;
        if (caller && err)
                caller_refuse(caller, err);
        else if (caller)
                caller_answer(caller, json_incref(answer));
}

/* Nothing is sent to it any more; on_ended brings the next one. */
static void end_kernel(struct session *session) {
        session->ending = true;
        kernel_kill(session->kernel);
}

/* Writes down where the variables are from now on: what was asked is answered. */
static int session_hold(struct session *session, enum journal_holds holds, struct err *err) {
        return journal_hold(session->kernel->journal, holds, err);
}

/* What the kernel says about a wake is told with the next result. True when variables are lost. */
static bool keep_wake_report(struct session *session, const json_t *answer, bool good) {
        json_t *report = sleep_report(answer);
        bool is_damaged = !good || json_array_size(json_object_get(report, "damaged")) > 0;
        json_decref(session->wake_report);
        session->wake_report = json_object_size(report) > 0 ? json_incref(report) : NULL;
        json_decref(report);
        return is_damaged;
}

/* Variables that cannot be read are kept for a person to look at; the session goes on without. */
static void give_up_sleep_file(struct session *session, const char *why) {
        char directory[1100];
        (void) session_hold(session, JOURNAL_HOLDS_LOST, NULL);
        tenant_file_rename(kernel_directory(session, directory), SESSION_SLEEP_FILE, SESSION_SLEEP_FILE ".unreadable");
        daemon_log("session %s: cannot be woken: %.300s; the file is kept as %s/" SESSION_SLEEP_FILE ".unreadable",
                   session->row.name, why, directory);
}

static void on_woken(struct session *session, bool good, const json_t *answer) {
        struct err err;
        const char *why = json_string_value(json_object_get(answer, "error"));
        session_move(session, SESSION_IDLE);
        if (keep_wake_report(session, answer, good))
                give_up_sleep_file(session, good  ? "some variables are damaged on the disk, and the others came back"
                                            : why ? why
                                                  : "its kernel does not say why");
        else if (session_hold(session, JOURNAL_HOLDS_KERNEL, &err) == 0)
                session_remove_sleep_file(session); /* not before: the next daemon would have neither */
        else { /* no room to write it down: it stays asleep */
                session_fail_runs(session, &err);
                end_kernel(session);
        }
}

/* Its variables are in memory as before: who asked for a sleep or a trim learns why. */
static void on_not_asleep(struct session *session, const json_t *answer) {
        struct err err;
        sleep_error(session->row.name, answer, &err);
        if (session->caller)
                answer_caller(session, NULL, &err);
        else
                daemon_log("%s", err.message);
        session->used_ms = loop_now_ms(); /* not again before it has been idle for as long once more */
}

static void on_slept(struct session *session, const json_t *answer, json_t *told) {
        struct err err;
        json_decref(session->held_back);
        session->held_back = NULL;
        if (session_hold(session, JOURNAL_HOLDS_FILE, &err) < 0) /* that it was asked, and the file, say it too */
                daemon_log("session %s: %s", session->row.name, err.message);
        session_move(session, SESSION_ASLEEP);
        json_t *report = sleep_report(answer);
        json_object_update(told, report);
        json_decref(report);
        json_object_set(told, "bytes", json_object_get(answer, "bytes"));
        end_kernel(session); /* it is ending anyway */
}

/* What is in the way is named, and large data goes to the disk instead. True when the caller waits for that now. */
static bool on_held_back(struct session *session, json_t *held) {
        json_decref(session->held_back);
        session->held_back = held_back_of(held);
        (void) session_hold(session, JOURNAL_HOLDS_KERNEL, NULL);
        if (session_hibernate(session, true, session->caller, NULL) < 0)
                return false;
        session->asked = SESSION_ASKED_TRIM_INSTEAD;
        return true;
}

/* The kernel's word about a trim, a sleep or a wake. */
static void on_answer(struct session *session, json_t *answer) {
        enum session_question asked = session->asked;
        bool good = json_is_true(json_object_get(answer, "ok"));
        session->asked = SESSION_ASKED_NOTHING;
        if (asked == SESSION_ASKED_PACKAGES) {
                (void) session_hold(session, journal_holds(session->kernel->journal), NULL);
                if (session->install)
                        install_kernel_answered(session->install, answer);
                session_advance(session);
                return;
        }
        json_t *told = json_object(), *held = json_object_get(answer, "held");
        if (asked == SESSION_ASKED_WAKE)
                on_woken(session, good, answer);
        else if ((asked == SESSION_ASKED_TRIM || asked == SESSION_ASKED_TRIM_INSTEAD) && good) {
                (void) session_hold(session, JOURNAL_HOLDS_TRIMMED, NULL);
                session_move(session, SESSION_TRIMMED);
                json_object_set(told, "bytes", json_object_get(answer, "bytes"));
        } else if (asked == SESSION_ASKED_SLEEP && good)
                on_slept(session, answer, told);
        else if (asked == SESSION_ASKED_SLEEP && held) {
                if (on_held_back(session, held)) {
                        json_decref(told);
                        return;
                }
        } else {
                (void) session_hold(session, JOURNAL_HOLDS_KERNEL, NULL);
                if (asked != SESSION_ASKED_TRIM_INSTEAD) /* else what holds it back is told */
                        on_not_asleep(session, answer);
        }
        json_object_set_new(told, "state", json_string(session_state_name(session)));
        if (session->held_back)
                json_object_set(told, "held_back", session->held_back);
        answer_caller(session, told, NULL);
        json_decref(told);
        session_advance(session);
}

static void end_run(struct session *session) {
        struct run *run = session->runs;
        session->runs = run->next;
        run_free(run);
        session->used_ms = loop_now_ms();
        session_move(session, SESSION_IDLE);
}

/* Its result is told. */
static void leave_run(struct session *session) {
        end_run(session);
        if (session->ephemeral) {
                /* Whoever helps an install is waited for: what it wrote is looked at when it is gone. */
                session->kernel->is_over = session->kernel->ephemeral && !session->helps;
                session_remove(session, false);
        } else
                session_advance(session);
}

static void on_ended(struct kernel *kernel);
static void on_artifacts_collected(struct session *session);

/* What a run left may be much to look at or to copy: then its answer waits, and the daemon does not. */
static bool is_collected_first(struct session *session, const struct kernel_reply *reply) {
        if (session->job)
                return true;
        struct kernel_reply copy = { 0 };
        if (!artifact_collect_is_much(session) || (reply && !kernel_reply_copy(reply, &copy)))
                return false;
        if (!artifact_collect_begin(session, on_artifacts_collected)) {
                kernel_reply_release(&copy);
                return false;
        }
        loop_timer_drop(&session->runs->timer); /* the code has ended in time */
        session->outcome = copy;
        return true;
}

static void finish_run(struct session *session, const struct kernel_reply *reply) {
        if (is_collected_first(session, reply) || disk_hold_result(session, reply, finish_run))
                return;
        run_finish(session->runs, reply);
        if (session->kernel->state != KERNEL_DEAD) {
                leave_run(session);
                return;
        }
        end_run(session); /* it died while its artifacts were copied */
        on_ended(session->kernel);
}

static void on_artifacts_collected(struct session *session) {
        struct kernel_reply reply = session->outcome;
        session->outcome = (struct kernel_reply) { 0 };
        if (reply.payload)
                finish_run(session, &reply);
        else
                on_ended(session->kernel);
        kernel_reply_release(&reply);
}

static bool is_answer_to_open(const struct kernel *kernel, const struct kernel_reply *reply) {
        const struct journal_request *open = journal_open_request(kernel->journal);
        return open && kernel_reply_is(reply, KERNEL_FIELD_ID, open->id);
}

/* The kernel has executed the open request, and its answer is unknown: the record is damaged. */
static void on_answer_lost(struct session *session) {
        if (session->asked == SESSION_ASKED_NOTHING && session->runs && session->runs->started) {
                run_finish_without_result(session->runs);
                leave_run(session);
                return;
        }
        json_t *lost = json_pack("{s:b, s:s}", "ok", 0, "error", "its answer is lost");
        on_answer(session, lost);
        json_decref(lost);
}

/* Whatever it answers from now on would be one run late. */
static void break_off(struct kernel *kernel) {
        kernel->broke_protocol = true;
        kernel_kill(kernel);
}

/* The kernel's word about something else than a run. */
static void on_small_answer(struct session *session, const struct kernel_reply *reply) {
        json_t *answer = kernel_reply_parse(reply);
        if (answer)
                on_answer(session, answer);
        else
                break_off(session->kernel);
        json_decref(answer);
}

static void on_frame(struct kernel *kernel, enum kernel_frame type, const struct kernel_reply *reply) {
        struct session *session = kernel->owner;
        struct run *run = session->runs;
        if (type == KERNEL_REPEATED)
                on_answer_lost(session);
        else if (session->asked != SESSION_ASKED_NOTHING && type == KERNEL_ANSWER && is_answer_to_open(kernel, reply))
                on_small_answer(session, reply);
        else if (!run || !run->started)
                kernel_kill(kernel); /* it answers no request */
        else if (type == KERNEL_DISPLAY && reply->fields[KERNEL_FIELD_DATA].text)
                run_add_display(run, reply->fields[KERNEL_FIELD_DATA].text, reply->fields[KERNEL_FIELD_DATA].size);
        else if (type == KERNEL_RESULT || type == KERNEL_ANSWER) {
                /* An id that is not this run's is an answer to something else: it proves nothing about this run. */
                if (kernel_reply_is(reply, KERNEL_FIELD_ID, run->id))
                        finish_run(session, reply);
                else
                        break_off(kernel);
        }
}

/* Where the variables are, now that the kernel is gone. */
static void settle_dead(struct session *session, struct kernel *kernel) {
        if (session->ending && session->state != SESSION_ASLEEP)
                (void) journal_hold(kernel->journal, JOURNAL_HOLDS_NOTHING, NULL); /* it was requested */
        recovery_settle(session, kernel->journal);
        session_move(session, journal_holds(kernel->journal) == JOURNAL_HOLDS_FILE ? SESSION_ASLEEP
                              : session->ending                                    ? SESSION_NEW
                                                                                   : SESSION_LOST);
}

static void on_ended(struct kernel *kernel) {
        struct session *session = kernel->owner;
        struct run *run = session->runs;
        if (session->is_program && kernel->was_ready)
                program_end(session);
        if (run && run->started && kernel->was_ready && is_collected_first(session, NULL))
                return; /* it comes back here */
        if (!session->ephemeral)
                custody_drop(session->manager, kernel->id);
        enum session_question asked = session->asked;
        if (asked == SESSION_ASKED_PACKAGES && session->install)
                install_kernel_answered(session->install, NULL);
        session->asked = SESSION_ASKED_NOTHING;
        if (!kernel->was_ready) { /* it would die again: the callers get the error */
                struct err died;
                (void) err_set(&died, ERR_SYSTEM, "the kernel died while it was starting%s%s",
                               *kernel->last_words ? ": " : "", kernel->last_words);
                session_fail_runs(session, &died);
        } else if (run && run->started) {
                run_finish_dead(run);
                end_run(session);
        }
        if (!session->ephemeral && kernel->journal)
                settle_dead(session, kernel);
        else
                session_move(session, SESSION_LOST);
        if (asked == SESSION_ASKED_WAKE && !session->ending) { /* it would die again */
                struct err died;
                (void) err_set(&died, ERR_GONE,
                               "the kernel died while the session was being woken%s; its variables are "
                               "still on disk: give it more memory, or restart it without them",
                               kernel->usage.oom_kills > 0 ? ": the memory limit was reached" : "");
                session_fail_runs(session, &died);
        }
        session->ending = false;
        struct err gone;
        (void) err_set(&gone, ERR_GONE, "the kernel died before it answered");
        answer_caller(session, NULL, &gone);
        session->kernel = NULL;
        kernel_free(kernel);
        fd_close(&session->workspace_fd);
        if (session_is_going(session) || session->ephemeral)
                session_remove(session, session->keep_files);
        else
                session_advance(session);
}

static const struct kernel_listener listener = { on_ready, on_failed, on_output, on_frame, on_ended };

/* ---- runs ---- */

/* Code that fills the disk gets less time to react. */
static uint64_t grace_of(const struct run *run) {
        return run->reason == RUN_REASON_DISK || run->reason == RUN_REASON_RESERVE ? MANAGER_DISK_GRACE_MS
                                                                                   : MANAGER_INTERRUPT_GRACE_MS;
}

/* The kernel ignores a signal that comes before it has begun the run, so it is repeated, ever more rarely. */
static void interrupt_again(void *context) {
        struct run *run = context;
        uint64_t waited_ms = loop_now_ms() - run->told_ms, grace_ms = grace_of(run);
        run->timer = NULL;
        if (waited_ms >= grace_ms) {
                run->killed = true;
                kernel_kill(run->session->kernel);
                return;
        }
        kernel_signal(run->session->kernel, SIGINT);
        uint64_t next_ms = 2 * waited_ms + 50;
        if (next_ms > grace_ms)
                next_ms = grace_ms;
        run->timer = loop_timer(run->session->manager->loop, run->told_ms + next_ms, interrupt_again, run);
}

bool session_end_run(struct run *run, enum run_reason reason) {
        if (run->reason != RUN_REASON_NONE)
                return false;
        run->reason = reason;
        run->told_ms = loop_now_ms();
        loop_timer_drop(&run->timer);
        interrupt_again(run);
        return true;
}

static void on_deadline(void *context) {
        struct run *run = context;
        run->timer = NULL;
        (void) session_end_run(run, RUN_REASON_TIMEOUT);
}

static void watch_deadline(struct run *run) {
        run->timer =
                loop_timer(run->session->manager->loop, run->started_us / 1000 + run->timeout_ms, on_deadline, run);
}

static void start_run(struct session *session) {
        struct run *run = session->runs;
        struct kernel *kernel = session->kernel;
        struct err err;
        _cleanup_json_writer_ struct json_writer payload = { 0 };
        run_write_request(run, &payload);
        artifact_collect_prepare(session);
        kernel_mark_usage(kernel);
        run->started_us = loop_now_us();
        watch_deadline(run);
        struct journal_request request = { .is_run = true,
                                           .type = KERNEL_EXECUTE,
                                           .timeout_ms = run->timeout_ms,
                                           .tells_loss = journal_holds(kernel->journal) == JOURNAL_HOLDS_LOST,
                                           .payload = payload.bytes,
                                           .size = payload.size };
        memcpy(request.id, run->id, sizeof(request.id));
        int code = -1;
        if (payload.failed)
                (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        else
                code = kernel_request(kernel, &request, &err);
        if (code < 0) {
                session->runs = run->next;
                run_fail(run, &err);
                run_free(run);
                return;
        }
        waiting_drop(run); /* the journal has it */
        run->started = true;
        run->tells_loss = request.tells_loss;
        disk_begin_run(session, run);
        session->manager->counters.runs_started++;
        session_move(session, SESSION_RUNNING);
        run_tell_begun(session);
}

/* Asks the kernel for something that is no run. `fields` are those of the payload, but for its id. */
static int session_ask(struct session *session, enum kernel_frame type, const char *fields, struct err *err) {
        struct journal_request request = { .type = (uint8_t) type };
        _cleanup_free_ char *payload = NULL;
        if (run_make_id(request.id) < 0)
                return err_set(err, ERR_SYSTEM, "out of randomness");
        int size = asprintf(&payload, "{\"id\":\"%s\",%s}", request.id, fields);
        if (size < 0)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        request.payload = payload;
        request.size = (size_t) size;
        return kernel_request(session->kernel, &request, err);
}

static void session_wake(struct session *session) {
        struct err err;
        if (session_ask(session, KERNEL_WAKE, "\"path\":\"" SLEEP_PATH "\"", &err) == 0)
                session->asked = SESSION_ASKED_WAKE;
        else
                session_fail_runs(session, &err);
}

static bool has_run_to_start(const struct session *session) {
        return session->runs && !session->runs->started && !session_is_going(session) && !session->ending &&
               session->asked == SESSION_ASKED_NOTHING;
}

/* A program's kernel goes to its caller as soon as it is there; a caller that has left needs none. */
static void advance_program(struct session *session) {
        if (!session->kernel && session->caller && !session_is_going(session))
                order_kernel(session);
        if (!session->kernel || !session->caller)
                session_remove(session, false);
        else if (kernel_is_free(session->kernel))
                program_hand_over(session);
}

/* One step; false when there is nothing to do but wait. */
static bool advance(struct session *session) {
        if (!has_run_to_start(session))
                return false;
        if (!session->kernel)
                order_kernel(session);
        struct kernel *kernel = session->kernel;
        if (!kernel || !kernel_is_free(kernel) || !session->runs)
                return false;
        if (journal_holds(kernel->journal) == JOURNAL_HOLDS_FILE)
                session_wake(session);
        else
                start_run(session);
        return true;
}

void session_advance(struct session *session) {
        if (session->is_program) {
                advance_program(session);
                return;
        }
        while (advance(session)) /* a run that cannot be started makes room for the next */
                ;
        if (session->ephemeral && !session->runs && !session_is_going(session))
                session_remove(session, false); /* its only run could not be started */
}

void session_submit(struct session *session, struct run *run) {
        struct run **last = &session->runs;
        while (*last)
                last = &(*last)->next;
        *last = run;
        session->used_ms = loop_now_ms();
        session->row.used_ms = loop_wall_ms(); /* the registry learns it at the next sweep */
        session->touched = true;
        session_advance(session);
}

bool session_interrupt(struct session *session) {
        if (!session->runs || !session->runs->started || !session->kernel)
                return false;
        (void) session_end_run(session->runs, RUN_REASON_INTERRUPT);
        return true;
}

void session_cancel(struct session *session, struct run *run) {
        if (run->started) {
                (void) session_interrupt(session);
                return;
        }
        struct run **at = &session->runs;
        while (*at != run)
                at = &(*at)->next;
        *at = run->next;
        struct err gone;
        (void) err_set(&gone, ERR_GONE, "the run was cancelled before it began; nothing was run");
        run_fail(run, &gone);
        run_free(run);
        if (session->ephemeral)
                session_remove(session, false);
}

/* A session without a kernel. */
static void forget_variables(struct session *session) {
        struct journal *journal;
        if (session_open_journal(session, &journal, NULL) < 0)
                return;
        recovery_settle(session, journal);
        (void) journal_hold(journal, JOURNAL_HOLDS_NOTHING, NULL);
        journal_close(journal);
}

void session_restart(struct session *session) {
        struct kernel *kernel = session->kernel;
        if (session->runs && session->runs->started)
                session->runs->reason = RUN_REASON_REMOVED;
        if (kernel && kernel->state != KERNEL_MAKING) {
                if (!journal_open_run(kernel->journal)) /* else when it is dead */
                        (void) journal_hold(kernel->journal, JOURNAL_HOLDS_NOTHING, NULL);
                end_kernel(session);
        } else {
                forget_variables(session);
                session_move(session, SESSION_NEW);
        }
        session_remove_sleep_file(session); /* what was written down comes first */
}

int session_hibernate(struct session *session, bool trim_only, struct caller *caller, struct err *err) {
        if (!session->kernel || session->asked != SESSION_ASKED_NOTHING || session->runs)
                return err_set(err, ERR_BUSY, "session %s %s", session->row.name,
                               session->kernel ? "is running; interrupt it first" : "has no kernel to put to sleep");
        int code = trim_only ? session_ask(session, KERNEL_TRIM, "\"directory\":\"/run/session\"", err)
                             : session_ask(session, KERNEL_SLEEP, SLEEP_REQUEST, err);
        if (code < 0)
                return -1;
        session->asked = trim_only ? SESSION_ASKED_TRIM : SESSION_ASKED_SLEEP;
        session->caller = caller;
        if (caller)
                caller->session = session;
        return 0;
}

int session_ask_packages(struct session *session, const char *fields) {
        if (!session->kernel || session->runs || session->asked != SESSION_ASKED_NOTHING ||
            session_ask(session, KERNEL_PACKAGES, fields, NULL) < 0)
                return -1;
        session->asked = SESSION_ASKED_PACKAGES;
        return 0;
}

/* ---- after a dead daemon ---- */

/* The run that is open in the journal. Its time limit goes on from when it began. */
static void adopt_run(struct session *session, const struct journal_request *open) {
        json_t *nothing = json_object();
        struct run *run = run_make(session, nothing, open->timeout_ms);
        json_decref(nothing);
        if (!run)
                return;
        uint64_t now_us = loop_now_us(), began_us = (uint64_t) open->began_ms * 1000;
        memcpy(run->id, open->id, sizeof(run->id));
        run->started = run->is_adopted = true;
        run->tells_loss = open->tells_loss;
        run->started_us = began_us < now_us ? began_us : now_us;
        session->runs = run;
        session_move(session, SESSION_RUNNING);
        disk_begin_run(session, run);
        struct journal_run told;
        if (journal_find(session->kernel->journal, run->id, &told, NULL) == 0)
                artifact_collect_resume(session, told.began_ms);
        watch_deadline(run);
}

static void adopt_question(struct session *session, const struct journal_request *open) {
        session->asked = open->type == KERNEL_TRIM    ? SESSION_ASKED_TRIM
                         : open->type == KERNEL_SLEEP ? SESSION_ASKED_SLEEP
                         : open->type == KERNEL_WAKE  ? SESSION_ASKED_WAKE
                                                      : SESSION_ASKED_PACKAGES;
        session_move(session, SESSION_IDLE);
}

void session_adopt(struct session *session, pid_t pid, int fds[static MAKER_FDS], const char *kernel_id,
                   const char *group) {
        struct maker_request request = { 0 };
        struct err err;
        struct session_engine engine = session_engine_of(&session->row);
        memcpy(request.engine, engine.name, sizeof(request.engine));
        (void) snprintf(request.kernel_id, sizeof(request.kernel_id), "%s", kernel_id);
        (void) snprintf(request.group, sizeof(request.group), "%s", group);
        (void) snprintf(request.state_dir, sizeof(request.state_dir), "%s", session->state_dir);
        (void) snprintf(request.workspace, sizeof(request.workspace), "%s", session->workspace);
        session->kernel = kernel_make(session->manager->loop, &session->manager->host, &listener, session, &request);
        if (!session->kernel || kernel_adopt(session->kernel, pid, fds, &err) < 0) {
                daemon_log("session %s: its kernel cannot be taken over: %s", session->row.name,
                           session->kernel ? err.message : "out of memory");
                kernel_free(session->kernel);
                session->kernel = NULL;
                return;
        }
        if (network_rules_of(session, &session->kernel->rules, &err) < 0)
                daemon_log("session %s: its network stays closed: %s", session->row.name, err.message);
        struct kernel *kernel = session->kernel;
        if (!recovery_kernel_counts(session)) { /* it was to be ended, or had not begun */
                session_move(session, SESSION_NEW);
                session->ending = journal_holds(kernel->journal) == JOURNAL_HOLDS_NOTHING;
                kernel_kill(kernel);
                return;
        }
        const struct journal_request *open = journal_open_request(kernel->journal);
        session_move(session, journal_holds(kernel->journal) == JOURNAL_HOLDS_TRIMMED ? SESSION_TRIMMED : SESSION_IDLE);
        if (open && open->is_run)
                adopt_run(session, open);
        else if (open)
                adopt_question(session, open);
        kernel_resume(kernel);
}
