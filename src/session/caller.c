#include "session/caller.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "session/session.h"
#include "session/spill.h"

/* Nothing refers to it any more. */
static void caller_release(struct caller *caller) {
        if (caller->run)
                for (struct caller **at = &caller->run->callers; *at; at = &(*at)->next)
                        if (*at == caller) {
                                *at = caller->next;
                                break;
                        }
        if (caller->session && caller->session->caller == caller)
                caller->session->caller = NULL;
        if (caller->stand_in)
                caller->stand_in->behalf_of = NULL;
        if (caller->held_by)
                *caller->held_by = NULL;
        spill_free(caller->spill);
        caller->run = NULL;
        caller->next = NULL;
        caller->session = NULL;
        caller->spill = NULL;
        caller->held_by = NULL;
        caller->stand_in = NULL;
        caller->source = NULL;
}

/* ---- the audit log ---- */

/* Operations that only read are not recorded. Those that start a run are recorded when the run ends (run.c), or here if
 * no run began. */
static bool is_recorded(const char *operation, bool is_refused) {
        static const char *const runs[] = { "execute", "command" };
        static const char *const looks[] = { "ping",         "status",      "ps",        "session.list",
                                             "session.show", "session.log", "run.read",  "run.show",
                                             "file.read",    "file.list",   "file.stat", "artifact.list" };
        for (size_t i = 0; i < ELEMENTS(looks); i++)
                if (strcmp(looks[i], operation) == 0)
                        return false;
        for (size_t i = 0; i < ELEMENTS(runs); i++)
                if (strcmp(runs[i], operation) == 0)
                        return is_refused;
        return true;
}

void caller_begin(struct caller *caller, const char *operation, const char *session) {
        if (caller->operation && strcmp(caller->operation, operation) == 0)
                return;
        caller->operation = caller->type->via ? operation : NULL;
        caller->asked_ms = loop_now_ms();
        (void) snprintf(caller->about, sizeof(caller->about), "%s", session ? session : "");
}

void caller_done(struct caller *caller, const char *status) {
        const char *operation = caller->operation;
        caller->operation = NULL;
        if (!operation || !is_recorded(operation, strcmp(status, "ok") != 0))
                return;
        const struct audit_entry entry = { .key = caller->owner,
                                           .via = caller->type->via,
                                           .from = caller->from,
                                           .what = operation,
                                           .session = *caller->about ? caller->about : NULL,
                                           .status = status,
                                           .duration_ms = loop_now_ms() - caller->asked_ms };
        audit_write(&caller->manager->audit, &entry);
}

void caller_answer_text(struct caller *caller, const char *text, size_t size, json_t *json) {
        caller_done(caller, "ok");
        caller_release(caller);
        caller->type->answer(caller, text, size, json);
}

void caller_answer(struct caller *caller, json_t *answer) {
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);
        struct err err;
        (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (text)
                caller_answer_text(caller, text, strlen(text), answer);
        else
                caller_refuse(caller, &err);
        json_decref(answer);
}

void caller_refuse(struct caller *caller, const struct err *err) {
        caller_done(caller, err_code_name(err->code));
        caller_release(caller);
        caller->type->refuse(caller, err);
}

struct session *caller_find_session(const struct caller *caller, const char *name, struct err *err) {
        struct session *session = name ? session_find(caller->manager, caller->owner, name) : NULL;
        if (!name)
                (void) err_set(err, ERR_USAGE, "\"session\" must be given, as text");
        else if (!session && !caller_is_operator(caller))
                (void) err_set(err, ERR_NOT_FOUND,
                               "there is no sandbox \"%.100s\"; make it with create, or run something in it", name);
        else if (!session)
                (void) err_set(err, ERR_NOT_FOUND,
                               "there is no session \"%.100s\"; `glovebox session ls` shows those there are", name);
        return session;
}

void caller_report_begun(struct caller *caller, const char *run_id) {
        if (caller->is_begun)
                return;
        caller->is_begun = true;
        if (caller->type->begun)
                caller->type->begun(caller, run_id);
}

struct run *caller_run(const struct caller *caller) {
        return caller->stand_in ? caller->stand_in->run : caller->run;
}

void caller_leave(struct caller *caller) {
        struct run *run = caller_run(caller);
        if (caller->source)
                caller->source->leave(caller->source_context);
        struct session *program = caller->session && caller->session->is_program ? caller->session : NULL;
        caller_release(caller);
        if (program)
                session_remove(program, false);
        if (run && caller->cancel_on_disconnect)
                session_cancel(run->session, run);
}

void caller_feed(struct caller *caller) {
        if (caller->source)
                caller->source->feed(caller->source_context);
        else if (caller->spill)
                spill_feed(caller);
        else if (caller->run && caller->run->started)
                run_feed_caller(caller->run, caller);
}
