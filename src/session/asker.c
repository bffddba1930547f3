#include "session/asker.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "session/session.h"
#include "session/spill.h"

/* Nobody holds it any more. */
static void let_go(struct asker *asker) {
        if (asker->run)
                for (struct asker **at = &asker->run->askers; *at; at = &(*at)->next)
                        if (*at == asker) {
                                *at = asker->next;
                                break;
                        }
        if (asker->session && asker->session->asker == asker)
                asker->session->asker = NULL;
        if (asker->stand_in)
                asker->stand_in->behalf_of = NULL;
        if (asker->held_by)
                *asker->held_by = NULL;
        spill_free(asker->spill);
        asker->run = NULL;
        asker->next = NULL;
        asker->session = NULL;
        asker->spill = NULL;
        asker->held_by = NULL;
        asker->stand_in = NULL;
}

/* ---- the audit log ---- */

/* What only looks is not recorded; what runs is recorded when the run ends (run.c), or here when none began. */
static bool is_recorded(const char *operation, bool is_refused) {
        static const char *const runs[] = { "execute", "command" };
        static const char *const looks[] = { "ping", "status", "ps", "session.list", "session.show", "session.log",
                                             "run.read", "run.show", "file.read", "file.list", "file.stat",
                                             "artifact.list" };
        for (size_t i = 0; i < ELEMENTS(looks); i++)
                if (strcmp(looks[i], operation) == 0)
                        return false;
        for (size_t i = 0; i < ELEMENTS(runs); i++)
                if (strcmp(runs[i], operation) == 0)
                        return is_refused;
        return true;
}

void asker_begin(struct asker *asker, const char *operation, const char *session) {
        asker->operation = asker->type->via ? operation : NULL;
        asker->asked_ms = loop_now_ms();
        (void) snprintf(asker->about, sizeof(asker->about), "%s", session ? session : "");
}

static void record(struct asker *asker, const char *status) {
        const char *operation = asker->operation;
        asker->operation = NULL;
        if (!operation || !is_recorded(operation, strcmp(status, "ok") != 0))
                return;
        const struct audit_entry entry = { .key = asker->owner, .via = asker->type->via, .from = asker->from,
                                           .what = operation, .session = *asker->about ? asker->about : NULL,
                                           .status = status, .duration_ms = loop_now_ms() - asker->asked_ms };
        audit_write(&asker->daemon->audit, &entry);
}

void asker_answer_text(struct asker *asker, const char *text, size_t size, json_t *json) {
        record(asker, "ok");
        let_go(asker);
        asker->type->answer(asker, text, size, json);
}

void asker_answer(struct asker *asker, json_t *answer) {
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);
        struct err err;
        (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (text)
                asker_answer_text(asker, text, strlen(text), answer);
        else
                asker_refuse(asker, &err);
        json_decref(answer);
}

void asker_refuse(struct asker *asker, const struct err *err) {
        record(asker, err_code_name(err->code));
        let_go(asker);
        asker->type->refuse(asker, err);
}

struct run *asker_run(const struct asker *asker) {
        return asker->stand_in ? asker->stand_in->run : asker->run;
}

void asker_leave(struct asker *asker) {
        struct run *run = asker_run(asker);
        struct session *program = asker->session && asker->session->is_program ? asker->session : NULL;
        let_go(asker);
        if (program)
                session_remove(program, false);
        if (run && asker->cancel_on_disconnect)
                session_cancel(run->session, run);
}

void asker_feed(struct asker *asker) {
        if (asker->spill)
                spill_feed(asker);
        else if (asker->run && asker->run->started)
                run_feed_asker(asker->run, asker);
}
