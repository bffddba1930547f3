#include "session/asker.h"

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

void asker_answer_text(struct asker *asker, const char *text, size_t size, json_t *json) {
        let_go(asker);
        asker->type->answer(asker, text, size, json);
}

void asker_answer(struct asker *asker, json_t *answer) {
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);
        struct err err;
        (void) err_set(&err, ERR_SYSTEM, "out of memory");
        if (text)
                asker_answer_text(asker, text, strlen(text), answer);
        else
                asker_refuse(asker, &err);
        json_decref(answer);
}

void asker_refuse(struct asker *asker, const struct err *err) {
        let_go(asker);
        asker->type->refuse(asker, err);
}

void asker_leave(struct asker *asker) {
        struct run *run = asker->stand_in ? asker->stand_in->run : asker->run;
        let_go(asker);
        if (run && asker->cancel_on_disconnect)
                session_cancel(run->session, run);
}

void asker_feed(struct asker *asker) {
        if (asker->spill)
                spill_feed(asker);
        else if (asker->run && asker->run->started)
                run_feed_asker(asker->run, asker);
}
