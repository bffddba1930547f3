/* Sessions: make, show, list, interrupt, restart, hibernate, remove. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "daemon/operation.h"
#include "daemon/remote.h"
#include "session/caller.h"
#include "session/recovery.h"
#include "session/session.h"
#include "session/session_config.h"
#include "session/session_move.h"

enum { RUNS_SHOWN = 10, RUNS_LOGGED = 20 };

int operation_session_create(struct caller *caller, const char *name, json_t *options,
                             struct session_created *ret_created, struct err *err) {
        bool is_new = false;
        caller_begin(caller, "session.create", name);
        struct session *session = session_config_find_or_create(caller, name, options, &is_new, err);
        if (!session || (!is_new && session_config_check_request(caller, session, options, err) < 0))
                return -1;
        if (is_new && json_is_true(json_object_get(options, "provisional")))
                session->is_unproven = true;
        *ret_created = (struct session_created) {
                .info = session_info_of(session),
                .is_new = is_new,
                .unchanged = is_new ? NULL : session_config_list_unchanged(session, options),
        };
        return 0;
}

void operation_session_list(struct caller *caller, session_visit *each, void *context) {
        caller_begin(caller, "session.list", NULL);
        for (struct session *session = caller->manager->sessions; session; session = session->next)
                if (session_is_seen_by(session, caller->owner) && !session_is_going(session)) {
                        const struct session_info info = session_info_of(session);
                        each(context, &info);
                }
}

/* A session that sleeps or never ran has no kernel, but its journal is there. */
static struct journal *open_journal(struct session *session, struct journal **ret_owned, struct err *err) {
        *ret_owned = NULL;
        if (session->kernel && session->kernel->journal)
                return session->kernel->journal;
        return session_open_journal(session, ret_owned, err) < 0 ? NULL : *ret_owned;
}

/* A result begins with its small members (run_result.c): the rest is not read. */
static void add_run_outcome(struct journal *journal, const struct journal_run *run, json_t *item) {
        char head[512], status[32];
        size_t size = 0;
        struct journal_event event;
        if (journal_event(journal, run->run_id, run->events, &event, NULL) < 0 || event.kind != JOURNAL_EVENT_RESULT ||
            journal_read(journal, &event, 0, head, sizeof(head) - 1, &size, NULL) < 0)
                return;
        head[size] = '\0';
        const char *text = strstr(head, "\"status\":\""), *took = strstr(head, "\"duration_ms\":");
        unsigned long long took_ms;
        if (text && sscanf(text, "\"status\":\"%31[a-z]\"", status) == 1)
                json_object_set_new(item, "status", json_string(status));
        if (took && sscanf(took, "\"duration_ms\":%llu", &took_ms) == 1)
                json_object_set_new(item, "duration_ms", json_integer((json_int_t) took_ms));
}

static json_t *describe_runs(struct session *session, size_t limit) {
        json_t *array = json_array();
        struct journal *owned;
        struct journal *journal = open_journal(session, &owned, NULL);
        if (!journal)
                return array;
        struct journal_run runs[JOURNAL_RUNS_KEPT];
        size_t n = journal_list(journal, runs, limit < JOURNAL_RUNS_KEPT ? limit : JOURNAL_RUNS_KEPT);
        for (size_t i = 0; i < n; i++) {
                json_t *item = json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "run_id", runs[i].run_id, "ended",
                                         (int) runs[i].ended, "events", (json_int_t) runs[i].events, "stdout_bytes",
                                         (json_int_t) runs[i].bytes[JOURNAL_OUT], "stderr_bytes",
                                         (json_int_t) runs[i].bytes[JOURNAL_ERR], "began",
                                         (json_int_t) runs[i].began_ms, "end", (json_int_t) runs[i].ended_ms);
                if (item && runs[i].ended)
                        add_run_outcome(journal, &runs[i], item);
                if (item && runs[i].damaged) /* on the disk: there is no result */
                        json_object_set_new(item, "status", json_string("damaged"));
                json_array_append_new(array, item);
        }
        journal_close(owned);
        return array;
}

int operation_session_show(struct caller *caller, const char *name, struct session_details *ret_details,
                           struct err *err) {
        caller_begin(caller, "session.show", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session)
                return -1;
        *ret_details = (struct session_details) { .info = session_info_of(session),
                                                  .runs = describe_runs(session, RUNS_SHOWN),
                                                  .isolation = session_isolation(session) };
        return 0;
}

int operation_session_log(struct caller *caller, const char *name, size_t limit, struct err *err) {
        caller_begin(caller, "session.log", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return remote_pass_new(caller, session, "session.log", json_pack("{s:I}", "limit", (json_int_t) limit),
                                       err);
        caller_answer(caller, json_pack("{s:o}", "runs", describe_runs(session, limit ? limit : RUNS_LOGGED)));
        return 0;
}

int operation_session_remove(struct caller *caller, const char *name, bool keep_files, struct err *err) {
        caller_begin(caller, "session.remove", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return remote_remove(caller, session, keep_files, err);
        session_remove(session, keep_files);
        caller_answer(caller, json_object());
        return 0;
}

void operation_session_remove_all(struct session_manager *manager, bool (*is_meant)(const char *name, void *context),
                                  void *context) {
        for (struct session *session = manager->sessions, *next; session; session = next) {
                next = session->next;
                if (!session->ephemeral && !session_is_going(session) && !*session->row.owner &&
                    is_meant(session->row.name, context))
                        session_remove(session, false);
        }
}

int operation_session_interrupt(struct caller *caller, const char *name, struct err *err) {
        caller_begin(caller, "session.interrupt", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return remote_pass_new(caller, session, "session.interrupt", NULL, err);
        caller_answer(caller, json_pack("{s:b}", "interrupted", (int) session_interrupt(session)));
        return 0;
}

int operation_session_restart(struct caller *caller, const char *name, struct err *err) {
        caller_begin(caller, "session.restart", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return remote_pass_new(caller, session, "session.restart", NULL, err);
        session_restart(session);
        caller_answer(caller, json_object());
        return 0;
}

int operation_session_hibernate(struct caller *caller, const char *name, bool trim_only, struct err *err) {
        caller_begin(caller, "session.hibernate", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return remote_pass_new(caller, session, "session.hibernate",
                                       json_pack("{s:s}", "depth", trim_only ? "trim" : "sleep"), err);
        if (session->state == SESSION_ASLEEP) {
                caller_answer(caller, json_pack("{s:s}", "state", "asleep"));
                return 0;
        }
        return session_hibernate(session, trim_only, caller, err);
}

int operation_session_move(struct caller *caller, const char *name, json_t *options, struct session_info *ret_info,
                           struct err *err) {
        caller_begin(caller, "session.move", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session || session_move_engine(&session, options, err) < 0)
                return -1;
        *ret_info = session_info_of(session);
        return 0;
}

int operation_session_adopt(struct caller *caller, const char *name, struct session_info *ret_info, struct err *err) {
        caller_begin(caller, "session.adopt", name);
        struct session *session = caller_find_session(caller, name, err);
        if (!session)
                return -1;
        if (session->is_remote)
                return err_set(err, ERR_UNSUPPORTED, "session %s is at a remote itself", session->row.name);
        if (recovery_take_sleep_file(session, err) < 0)
                return -1;
        *ret_info = session_info_of(session);
        return 0;
}
