#include "session/session.h"

#include <dirent.h>
#include <string.h>

#include "base/fd.h"
#include "session/program.h"
#include "session/recovery.h"
#include "session/session_kernel.h"
#include "session/session_question.h"
#include "session/session_run.h"
#include "session/sleep_file.h"
#include "session/vault_link.h"

void session_fail_runs(struct session *session, const struct err *err) {
        if (session->is_program)
                program_fail(session, err);
        while (session->runs) {
                struct run *run = session->runs;
                session->runs = run->next;
                if (!run->callers && !run->refusal)
                        session->is_unproven = false; /* acknowledged: its failure must stay readable */
                run_fail(run, err);
                run_free(run);
        }
}

/* ---- events of the kernel ---- */

static void on_ready(struct kernel *kernel) {
        struct session *session = kernel->owner;
        session->is_unproven = false;
        session_set_state(session, SESSION_IDLE);
        if (!session->ephemeral)
                recovery_settle(session, kernel->journal); /* what the last kernel left open */
        vault_link_put(session);
        session_advance(session);
}

/* Files may have been put into it meanwhile. A directory of the user's is not removed with a session. */
static bool has_files(const struct session *session) {
        bool has = false;
        DIR *directory = *session->row.workspace ? NULL : opendir(session->workspace);
        for (struct dirent *entry; directory && !has && (entry = readdir(directory));)
                has = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                      strcmp(entry->d_name, "artifacts") != 0;
        if (directory)
                (void) closedir(directory);
        return has;
}

/* True if nothing is to stay of a session whose kernel could not be made. */
static bool ends_with_its_kernel(const struct session *session) {
        return session_is_going(session) || session->ephemeral ||
               (session->is_unproven && !session->runs && !has_files(session));
}

static void on_failed(struct kernel *kernel, const struct err *err) {
        struct session *session = kernel->owner;
        session->kernel = NULL;
        kernel_free(kernel);
        if (!session_is_going(session)) /* else it failed because the files are gone, and the removal says that */
                session_fail_runs(session, err);
        if (ends_with_its_kernel(session))
                session_remove(session, session->keep_files);
}

static void session_on_output(struct kernel *kernel) {
        struct session *session = kernel->owner;
        if (session->runs && session->runs->started)
                run_feed(session->runs);
}

static bool answers_question(const struct session *session, enum kernel_frame type, const struct kernel_reply *reply) {
        const struct journal_request *open = journal_open_request(session->kernel->journal);
        return session->asked != SESSION_ASKED_NOTHING && type == KERNEL_ANSWER && open &&
               kernel_reply_is(reply, KERNEL_FIELD_ID, open->id);
}

static void on_run_frame(struct session *session, enum kernel_frame type, const struct kernel_reply *reply) {
        struct run *run = session->runs;
        if (type == KERNEL_DISPLAY && reply->fields[KERNEL_FIELD_DATA].text)
                run_add_display(run, reply->fields[KERNEL_FIELD_DATA].text, reply->fields[KERNEL_FIELD_DATA].size);
        else if (type == KERNEL_RESULT || type == KERNEL_ANSWER) {
                /* An answer with another id belongs to another request, and means nothing for this run. */
                if (kernel_reply_is(reply, KERNEL_FIELD_ID, run->id))
                        session_finish_run(session, reply);
                else
                        session_break_off_kernel(session);
        }
}

static void on_frame(struct kernel *kernel, enum kernel_frame type, const struct kernel_reply *reply) {
        struct session *session = kernel->owner;
        bool is_running = session->runs && session->runs->started;
        if (type == KERNEL_PONG) {
                sleep_file_remove(session); /* an old one: it lives */
                session_advance(session);
        } else if (type == KERNEL_REPEATED) {
                if (session->asked == SESSION_ASKED_NOTHING && is_running)
                        session_finish_run_without_result(session);
                else
                        session_question_lost(session);
        } else if (answers_question(session, type, reply))
                session_question_answered(session, reply);
        else if (is_running)
                on_run_frame(session, type, reply);
        else
                kernel_kill(kernel); /* it answers no request */
}

/* ---- the end of the kernel ---- */

/* Records where the variables are now. */
static void settle_variables(struct session *session, struct kernel *kernel) {
        bool is_requested = session_ends_kernel(session);
        if (is_requested && session->state != SESSION_ASLEEP)
                (void) journal_hold(kernel->journal, JOURNAL_HOLDS_NOTHING, NULL); /* it was requested */
        recovery_settle(session, kernel->journal);
        session_set_state(session, journal_holds(kernel->journal) == JOURNAL_HOLDS_FILE ? SESSION_ASLEEP
                                   : is_requested                                       ? SESSION_NEW
                                                                                        : SESSION_LOST);
}

/* A kernel that died before it was ready would die again: all waiting runs get the error. */
static void fail_unready(struct session *session, const struct kernel *kernel) {
        struct err died;
        if (session_is_going(session) || session_ends_kernel(session))
                return; /* it did not die by itself: the removal says so, or the runs get the next kernel */
        const char *why =
                kernel->usage.oom_kills > 0 ? "the memory limit was reached; give it more memory" : kernel->last_words;
        (void) err_set(&died, ERR_SYSTEM, "the kernel died while it was starting%s%s", *why ? ": " : "", why);
        session_fail_runs(session, &died);
}

/* The same for one that dies while it loads the sleep file. */
static void fail_unwoken(struct session *session, const struct kernel *kernel) {
        struct err died;
        (void) err_set(&died, ERR_GONE,
                       "the kernel died while the session was being woken%s; its variables are still on disk: give it "
                       "more memory, or restart it without them",
                       kernel->usage.oom_kills > 0 ? ": the memory limit was reached" : "");
        session_fail_runs(session, &died);
}

static void on_ended(struct kernel *kernel) {
        struct session *session = kernel->owner;
        bool was_ready = kernel_was_ready(kernel), was_running = was_ready && session->runs && session->runs->started;
        if (session->is_program && was_ready)
                program_end(session);
        if (was_running && session_collect_first(session, NULL))
                return; /* this is called again */
        if (!session->ephemeral)
                vault_link_drop(session->manager, kernel->id);
        enum session_question asked = session_question_dropped(session);
        if (!was_ready)
                fail_unready(session, kernel);
        else if (was_running)
                session_finish_run_dead(session);
        if (!session->ephemeral && kernel->journal)
                settle_variables(session, kernel);
        else
                session_set_state(session, SESSION_LOST);
        if (asked == SESSION_ASKED_WAKE && !session_ends_kernel(session))
                fail_unwoken(session, kernel);
        session_question_refuse(session);
        session->kernel = NULL;
        kernel_free(kernel);
        fd_close(&session->workspace_fd);
        if (ends_with_its_kernel(session))
                session_remove(session, session->keep_files);
        else
                session_advance(session);
}

const struct kernel_listener session_kernel_listener = { on_ready, on_failed, session_on_output, on_frame, on_ended };

/* ---- what is next ---- */

static bool has_run_to_start(const struct session *session) {
        return session->runs && !session->runs->started && !session_is_going(session) &&
               !session_ends_kernel(session) && session->asked == SESSION_ASKED_NOTHING;
}

/* A program's kernel goes to its caller as soon as it is ready; a caller that has disconnected needs none. */
static void advance_program(struct session *session) {
        if (!session->kernel && session->caller && !session_is_going(session))
                session_order_kernel(session);
        if (!session->kernel || !session->caller)
                session_remove(session, false);
        else if (kernel_is_free(session->kernel))
                program_hand_over(session);
}

/* One step; false when there is nothing to do but wait. */
static bool advance_once(struct session *session) {
        if (!has_run_to_start(session))
                return false;
        if (!session->kernel)
                session_order_kernel(session);
        struct kernel *kernel = session->kernel;
        if (!kernel || !kernel_is_free(kernel) || !session->runs)
                return false;
        if (journal_holds(kernel->journal) == JOURNAL_HOLDS_FILE)
                session_ask_wake(session);
        else
                session_start_run(session);
        return true;
}

void session_advance(struct session *session) {
        if (session->is_program) {
                advance_program(session);
                return;
        }
        bool had_run = session->runs != NULL;
        while (advance_once(session)) /* a run that cannot be started makes room for the next */
                ;
        if (session->runs || session_is_going(session))
                return;
        /* its only run could not be started */
        if (session->ephemeral || (had_run && !session->kernel && ends_with_its_kernel(session)))
                session_remove(session, false);
}

void session_submit(struct session *session, struct run *run) {
        struct run **last = &session->runs;
        while (*last)
                last = &(*last)->next;
        *last = run;
        session->used_ms = loop_now_ms();
        session->row.used_ms = loop_wall_ms(); /* written to the registry at the next sweep */
        session->touched = true;
        session_advance(session);
}

/* ---- restart ---- */

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
                session->runs->reason = RUN_REASON_RESTARTED;
        if (kernel && kernel->state != KERNEL_MAKING) {
                if (!journal_open_run(kernel->journal)) /* otherwise on_ended records it */
                        (void) journal_hold(kernel->journal, JOURNAL_HOLDS_NOTHING, NULL);
                session_end_kernel(session);
        } else {
                forget_variables(session);
                session_set_state(session, SESSION_NEW);
        }
        sleep_file_remove(session); /* the record comes first */
}
