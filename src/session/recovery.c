#include "session/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "kernel/kernel.h"
#include "session/run_result.h"
#include "session/session.h"
#include "session/sleep_file.h"

/* Ends the open run with an error from the daemon. */
static void end_run(struct journal *journal, const char *run_id, const char *status, const char *name,
                    const char *message, enum journal_holds holds) {
        struct run_result result;
        _cleanup_json_writer_ struct json_writer text = { 0 };
        size_t small;
        struct err err;
        run_result_judge_lost(run_id, status, name, message, &result);
        run_result_write(&result, &text, &small);
        json_writer_put_literal(&text, ",\"stdout_cut_bytes\":0,\"stderr_cut_bytes\":0}");
        if (text.failed || journal_end(journal, text.bytes, text.size, holds, &err) < 0) {
                daemon_log("run %s: its end cannot be written down yet: %s", run_id,
                           text.failed ? "out of memory" : err.message);
                if (!text.failed)
                        journal_end_later(journal, text.bytes, text.size, holds);
        }
        run_result_release(&result);
}

static bool recovery_hold(struct session *session, struct journal *journal, enum journal_holds holds) {
        struct err err;
        if (journal_holds(journal) == holds && !journal_open_request(journal))
                return true;
        if (journal_hold(journal, holds, &err) == 0)
                return true;
        daemon_log("session %s: %s", session->row.name, err.message);
        return false;
}

/* Determines where the variables are, after the kernel is gone. */
static enum journal_holds find_variables(struct session *session, const struct journal *journal) {
        const struct journal_request *open = journal_open_request(journal);
        bool has_file = sleep_file_exists(session);
        bool was_falling_asleep = open && !open->is_run && open->type == KERNEL_SLEEP;
        struct journal_run newest;
        switch (journal_holds(journal)) {
        case JOURNAL_HOLDS_NOTHING:
                return JOURNAL_HOLDS_NOTHING;
        case JOURNAL_HOLDS_FILE:
                return has_file ? JOURNAL_HOLDS_FILE : JOURNAL_HOLDS_LOST;
        case JOURNAL_HOLDS_KERNEL:
        case JOURNAL_HOLDS_TRIMMED:
                /* A file with its final name is complete, and nothing has run since it was requested. The record of that
                 * may be damaged; then a kernel that lives has an old file removed. */
                return (was_falling_asleep || journal_is_torn(journal)) && has_file ? JOURNAL_HOLDS_FILE
                                                                                    : JOURNAL_HOLDS_LOST;
        case JOURNAL_HOLDS_UNKNOWN:
                if (has_file)
                        return JOURNAL_HOLDS_FILE;
                return journal_list(journal, &newest, 1) > 0 || open || journal_is_torn(journal)
                               ? JOURNAL_HOLDS_LOST
                               : JOURNAL_HOLDS_NOTHING;
        case JOURNAL_HOLDS_LOST:
        case JOURNAL_HOLDS_STATES:
                break;
        }
        return JOURNAL_HOLDS_LOST;
}

void recovery_settle(struct session *session, struct journal *journal) {
        const char *run = journal_open_run(journal);
        enum journal_holds holds = run ? JOURNAL_HOLDS_LOST : find_variables(session, journal);
        if (run) {
                daemon_log("session %s: run %s was lost with its kernel", session->row.name, run);
                end_run(journal, run, "killed", "run_lost",
                        "the run was on when its kernel, the daemon and the vault ended (the host restarted, or they "
                        "were killed together): its result is lost, variables are lost, files are kept",
                        JOURNAL_HOLDS_LOST);
        } else if (!recovery_hold(session, journal, holds))
                return; /* the file may be all there is */
        if (holds != JOURNAL_HOLDS_FILE)
                sleep_file_remove(session); /* an old one */
}

int recovery_settle_session(struct session *session, struct err *err) {
        struct journal *journal;
        if (session_open_journal(session, &journal, err) < 0) {
                bool is_there = err->sys_errno != 0; /* what it says is unknown; a sleep file that is there is whole */
                session_set_state(session, !is_there                    ? SESSION_NEW
                                           : sleep_file_exists(session) ? SESSION_ASLEEP
                                                                        : SESSION_LOST);
                (void) err_prefix(err, "session %s", session->row.name);
                if (is_there && err_is_shortage(err))
                        return -1;
                if (is_there)
                        daemon_log("%s", err->message);
                return 0;
        }
        recovery_settle(session, journal);
        session_set_state(session, journal_holds(journal) == JOURNAL_HOLDS_FILE   ? SESSION_ASLEEP
                                   : journal_holds(journal) == JOURNAL_HOLDS_LOST ? SESSION_LOST
                                                                                  : SESSION_NEW);
        journal_close(journal);
        return 0;
}

bool recovery_kernel_counts(struct session *session) {
        struct journal *journal = session->kernel->journal;
        if (journal_open_request(journal))
                return true;
        if (journal_holds(journal) == JOURNAL_HOLDS_UNKNOWN)
                (void) recovery_hold(session, journal, JOURNAL_HOLDS_KERNEL);
        bool counts = journal_holds(journal) == JOURNAL_HOLDS_KERNEL || journal_holds(journal) == JOURNAL_HOLDS_TRIMMED;
        if (journal_holds(journal) != JOURNAL_HOLDS_FILE && !journal_is_torn(journal))
                sleep_file_remove(session);
        return counts;
}

/* The session's journal, with its directory: a session that never had a kernel has none. */
static int open_or_make(struct session *session, struct journal **ret_journal, struct err *err) {
        char path[1100];
        (void) snprintf(path, sizeof(path), "%s/journal", session->state_dir);
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return err_sys(err, errno, "making %s", path);
        return session_open_journal(session, ret_journal, err);
}

int recovery_take_sleep_file(struct session *session, struct err *err) {
        struct journal *journal;
        if (session->kernel || session->runs)
                return err_set(err, ERR_BUSY, "session %s has a box: its variables are in there", session->row.name);
        if (!sleep_file_exists(session))
                return err_set(err, ERR_NOT_FOUND, "session %s has no sleep file", session->row.name);
        if (open_or_make(session, &journal, err) < 0)
                return -1;
        int code = journal_hold(journal, JOURNAL_HOLDS_FILE, err);
        journal_close(journal);
        if (code == 0 && session->state != SESSION_ASLEEP)
                session_set_state(session, SESSION_ASLEEP);
        return code;
}

int recovery_knows_run(struct session *session, const char *run_id, struct err *err) {
        struct journal_run found;
        struct journal *owned = NULL, *journal = session->kernel ? session->kernel->journal : NULL;
        if (!journal && session_open_journal(session, &owned, err) < 0)
                return err_is_shortage(err) ? -1 : 0;
        bool known = journal_find(journal ? journal : owned, run_id, &found, NULL) == 0;
        journal_close(owned);
        return known;
}

void recovery_record_failure(struct run *run, const struct err *err) {
        struct session *session = run->session;
        struct journal *owned = NULL, *journal = session->kernel ? session->kernel->journal : NULL;
        struct err failed;
        if (!run->waiting_number || session_is_going(session) || (journal && journal_open_request(journal)))
                return;
        struct journal_request request = { .type = KERNEL_EXECUTE, .timeout_ms = run->timeout_ms };
        (void) snprintf(request.id, sizeof(request.id), "%s", run->id);
        if (!journal && open_or_make(session, &owned, &failed) == 0)
                journal = owned;
        enum journal_holds holds = journal ? journal_holds(journal) : JOURNAL_HOLDS_UNKNOWN;
        struct journal_run newest;
        if (journal && holds == JOURNAL_HOLDS_UNKNOWN && journal_list(journal, &newest, 1) == 0)
                holds = JOURNAL_HOLDS_NOTHING; /* or this record would count as a run whose variables are lost */
        if (!journal || journal_begin(journal, &request, &failed) < 0)
                daemon_log("run %s never began (%s), and that cannot be written down: %s", run->id, err->message,
                           failed.message);
        else
                end_run(journal, run->id, "error", "not_run", err->message, holds);
        journal_close(owned);
}
