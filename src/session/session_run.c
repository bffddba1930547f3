#include "session/session_run.h"

#include <signal.h>
#include <string.h>

#include "base/memory.h"
#include "session/artifact_collect.h"
#include "session/user_permit.h"
#include "session/waiting_run.h"

/* ---- deadlines and interrupts ---- */

/* Code that fills the disk gets less time to react. */
static uint64_t grace_of(const struct run *run) {
        return run->reason == RUN_REASON_DISK || run->reason == RUN_REASON_RESERVE ? MANAGER_DISK_GRACE_MS
                                                                                   : MANAGER_INTERRUPT_GRACE_MS;
}

/* The kernel ignores a signal that arrives before the run has begun, so it is repeated, at growing intervals. */
static void interrupt_again(void *context) {
        struct run *run = context;
        uint64_t waited_ms = loop_now_ms() - run->interrupted_ms, grace_ms = grace_of(run);
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
        run->timer = loop_timer(run->session->manager->loop, run->interrupted_ms + next_ms, interrupt_again, run);
}

bool session_end_run(struct run *run, enum run_reason reason) {
        if (run->reason != RUN_REASON_NONE)
                return false;
        run->reason = reason;
        run->interrupted_ms = loop_now_ms();
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
        run->timer = loop_timer(run->session->manager->loop, (run->started_us + 999) / 1000 + run->timeout_ms,
                                on_deadline, run);
}

bool session_interrupt(struct session *session) {
        bool is_running = session->runs && session->runs->started;
        if (session->kernel && session->kernel->is_out_of_step && !is_running) {
                kernel_signal(session->kernel, SIGINT); /* it may be on with a run whose record is damaged */
                return true;
        }
        if (!is_running || !session->kernel)
                return false;
        (void) session_end_run(session->runs, RUN_REASON_INTERRUPT);
        return true;
}

/* ---- its start ---- */

static int send_run(struct run *run, struct journal_request *request, struct err *err) {
        _cleanup_json_writer_ struct json_writer payload = { 0 };
        if (run->is_damaged)
                return err_set(err, ERR_DAMAGED, "the request of this run was damaged on the disk: it was not run");
        run_write_request(run, &payload);
        if (payload.failed)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (user_permit_send(run, err) < 0) /* before the request: the kernel needs the permit */
                return -1;
        request->payload = payload.bytes;
        request->size = payload.size;
        memcpy(request->id, run->id, sizeof(request->id));
        return kernel_request(run->session->kernel, request, err);
}

void session_start_run(struct session *session) {
        struct run *run = session->runs;
        struct kernel *kernel = session->kernel;
        struct err err;
        session->is_unproven = false; /* a kernel of the pool was ready before */
        artifact_collect_prepare(session);
        kernel_mark_usage(kernel);
        run->started_us = loop_now_us();
        watch_deadline(run);
        struct journal_request request = { .is_run = true,
                                           .type = KERNEL_EXECUTE,
                                           .timeout_ms = run->timeout_ms,
                                           .reports_loss = journal_holds(kernel->journal) == JOURNAL_HOLDS_LOST };
        if (send_run(run, &request, &err) < 0) {
                session->runs = run->next;
                run_fail(run, &err);
                run_free(run);
                return;
        }
        waiting_run_drop(run); /* the journal has it */
        run->started = true;
        run->reports_loss = request.reports_loss;
        disk_begin_run(session, run);
        session->manager->counters.runs_started++;
        session_set_state(session, SESSION_RUNNING);
        run_report_begun(session);
}

void session_adopt_run(struct session *session, const struct journal_request *open) {
        json_t *nothing = json_object();
        struct run *run = run_make(session, nothing, open->timeout_ms);
        json_decref(nothing);
        if (!run)
                return;
        uint64_t now_us = loop_now_us(), began_us = (uint64_t) open->began_ms * 1000;
        memcpy(run->id, open->id, sizeof(run->id));
        run->started = run->is_adopted = true;
        run->reports_loss = open->reports_loss;
        run->started_us = began_us < now_us ? began_us : now_us;
        session->runs = run;
        session_set_state(session, SESSION_RUNNING);
        disk_begin_run(session, run);
        struct journal_run record;
        if (journal_find(session->kernel->journal, run->id, &record, NULL) == 0)
                artifact_collect_resume(session, record.began_ms);
        watch_deadline(run);
}

/* ---- its end ---- */

static void remove_first_run(struct session *session) {
        struct run *run = session->runs;
        session->runs = run->next;
        run_free(run);
        session->used_ms = loop_now_ms();
        session_set_state(session, SESSION_IDLE);
}

/* After the result: the next run, or the end of an ephemeral session. */
static void leave_run(struct session *session) {
        remove_first_run(session);
        if (session->ephemeral) {
                /* The helper box of an install must be dead before its files are examined. */
                if (session->kernel->ephemeral && !session->helps)
                        kernel_note_end(session->kernel, KERNEL_END_OVER);
                session_remove(session, false);
        } else
                session_advance(session);
}

static void on_artifacts_collected(struct session *session) {
        struct kernel_reply reply = session->artifacts.outcome;
        session->artifacts.outcome = (struct kernel_reply) { 0 };
        if (reply.payload)
                session_finish_run(session, &reply);
        else
                session->kernel->listener->ended(session->kernel);
        kernel_reply_release(&reply);
}

bool session_collect_first(struct session *session, const struct kernel_reply *reply) {
        if (session->artifacts.job)
                return true;
        struct kernel_reply copy = { 0 };
        if (!artifact_collect_is_much(session) || (reply && !kernel_reply_copy(reply, &copy)))
                return false;
        if (!artifact_collect_begin(session, on_artifacts_collected)) {
                kernel_reply_release(&copy);
                return false;
        }
        loop_timer_drop(&session->runs->timer); /* the code has ended in time */
        session->artifacts.outcome = copy;
        return true;
}

void session_finish_run(struct session *session, const struct kernel_reply *reply) {
        if (session_collect_first(session, reply) || disk_hold_result(session, reply, session_finish_run))
                return;
        run_finish(session->runs, reply);
        if (!kernel_is_dead(session->kernel)) {
                leave_run(session);
                return;
        }
        remove_first_run(session); /* the kernel died while its artifacts were copied */
        session->kernel->listener->ended(session->kernel);
}

void session_finish_run_without_result(struct session *session) {
        run_finish_without_result(session->runs);
        leave_run(session);
}

void session_finish_run_dead(struct session *session) {
        run_finish_dead(session->runs);
        remove_first_run(session);
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
