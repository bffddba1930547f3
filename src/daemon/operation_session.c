/* Operations on sessions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "daemon/operation.h"
#include "session/caller.h"
#include "session/session.h"
#include "session/session_move.h"
#include "session/session_config.h"
#include "session/session_config_check.h"

static int create(struct caller *caller, json_t *json, struct err *err) {
        static const char *const known[] = { "op", "session", "image", "mode", "limits", "env", "mounts", "data",
                                             "workspace", "network", "allow_weaker", "operator", "engine", "isolation", NULL };
        bool created = false;
        if (session_config_check_members(json, "session.create", known, err) < 0)
                return -1;
        struct session *session = session_config_find_or_create(caller, json, &created, err);
        if (!session)
                return -1;
        json_t *answer = session_to_json(session, false);
        json_object_set_new(answer, "created", json_boolean(created));
        if (!created)
                json_object_set_new(answer, "unchanged", session_config_list_unchanged(session, json));
        caller_answer(caller, answer);
        return 0;
}

static int list(struct caller *caller, json_t *json, struct err *err) {
        (void) json;
        (void) err;
        json_t *sessions = json_array();
        for (struct session *session = caller->manager->sessions; session; session = session->next)
                if (session_is_seen_by(session, caller->owner) && !session->removing)
                        json_array_append_new(sessions, session_to_json(session, true));
        caller_answer(caller, json_pack("{s:o}", "sessions", sessions));
        return 0;
}

/* A session that sleeps or never ran has no kernel, but its journal is there. */
static struct journal *open_journal(struct session *session, struct journal **ret_owned, struct err *err) {
        *ret_owned = NULL;
        if (session->kernel && session->kernel->journal)
                return session->kernel->journal;
        return session_open_journal(session, ret_owned, err) < 0 ? NULL : *ret_owned;
}

/* A result begins with what is small (run_result.c): the rest of it, however large, is not read. */
static void add_outcome(struct journal *journal, const struct journal_run *run, json_t *item) {
        char head[512], status[32];
        size_t size = 0;
        struct journal_event event;
        if (journal_event(journal, run->run_id, run->events, &event, NULL) < 0 || event.kind != JOURNAL_EVENT_RESULT ||
            journal_read(journal, &event, 0, head, sizeof(head) - 1, &size, NULL) < 0)
                return;
        head[size] = '\0';
        const char *told = strstr(head, "\"status\":\""), *took = strstr(head, "\"duration_ms\":");
        unsigned long long took_ms;
        if (told && sscanf(told, "\"status\":\"%31[a-z]\"", status) == 1)
                json_object_set_new(item, "status", json_string(status));
        if (took && sscanf(took, "\"duration_ms\":%llu", &took_ms) == 1)
                json_object_set_new(item, "duration_ms", json_integer((json_int_t) took_ms));
}

static json_t *runs_of(struct session *session, size_t limit) {
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
                        add_outcome(journal, &runs[i], item);
                if (item && runs[i].damaged) /* on the disk: there is no result */
                        json_object_set_new(item, "status", json_string("damaged"));
                json_array_append_new(array, item);
        }
        journal_close(owned);
        return array;
}

static int show(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        if (!session)
                return -1;
        json_t *answer = session_to_json(session, false);
        json_object_set_new(answer, "runs", runs_of(session, 10));
        json_object_set_new(answer, "isolation", session_isolation(session));
        caller_answer(caller, answer);
        return 0;
}

static int show_log(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        if (!session)
                return -1;
        json_int_t limit = json_integer_value(json_object_get(json, "limit"));
        caller_answer(caller, json_pack("{s:o}", "runs", runs_of(session, limit > 0 ? (size_t) limit : 20)));
        return 0;
}

static int remove_one(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        if (!session)
                return -1;
        session_remove(session, json_is_true(json_object_get(json, "keep_files")));
        caller_answer(caller, json_object());
        return 0;
}

static int interrupt(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        if (!session)
                return -1;
        caller_answer(caller, json_pack("{s:b}", "interrupted", (int) session_interrupt(session)));
        return 0;
}

static int restart(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        if (!session)
                return -1;
        session_restart(session);
        caller_answer(caller, json_object());
        return 0;
}

static int hibernate(struct caller *caller, json_t *json, struct err *err) {
        struct session *session = operation_session(caller, json, err);
        if (!session)
                return -1;
        if (session->state == SESSION_ASLEEP) {
                caller_answer(caller, json_pack("{s:s}", "state", "asleep"));
                return 0;
        }
        const char *depth = json_string_value(json_object_get(json, "depth"));
        return session_hibernate(session, depth && strcmp(depth, "trim") == 0, caller, err);
}

static int move(struct caller *caller, json_t *json, struct err *err) {
        static const char *const known[] = { "op", "session", "engine", "isolation", "image", NULL };
        struct session *session = operation_session(caller, json, err);
        if (!session || session_config_check_members(json, "session.move", known, err) < 0 ||
            session_move(&session, json, err) < 0)
                return -1;
        caller_answer(caller, session_to_json(session, false));
        return 0;
}

const struct operation operations_session[] = {
        { "session.create", create },       { "session.list", list },       { "session.show", show },
        { "session.remove", remove_one },   { "session.interrupt", interrupt }, { "session.restart", restart },
        { "session.hibernate", hibernate }, { "session.log", show_log },
        { "session.move", move },              { NULL, NULL },
};
