#include "session/session_move.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "session/recovery.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_engine.h"
#include "store/session_file.h"

/* The row with another engine in its options. */
static int change_row(const struct session *session, json_t *json, struct registry_session *row, struct err *err) {
        json_t *kept = *row->options ? json_loads(row->options, 0, NULL) : json_object();
        if (!kept)
                return err_set(err, ERR_DAMAGED, "the options of session %s cannot be read", row->name);
        (void) json_object_del(kept, "engine");
        (void) json_object_del(kept, "runtime");
        (void) json_object_del(kept, "asked");
        const char *image = json_string_value(json_object_get(json, "image"));
        (void) snprintf(row->image, sizeof(row->image), "%s", image ? image : session->manager->options->image);
        int code = session_engine_choose(session->manager, json, row, kept, err);
        const char *engine = json_string_value(json_object_get(kept, "engine"));
        if (engine && strcmp(engine, ENGINE_REMOTE) == 0)
                session_engine_keep_asked(json, kept);
        _cleanup_free_ char *text = json_object_size(kept) ? json_dumps(kept, JSON_COMPACT) : strdup("");
        json_decref(kept);
        if (code < 0)
                return -1;
        if (!text || strlen(text) >= sizeof(row->options))
                return err_set(err, ERR_LIMIT, "the options of session %s would be too large", row->name);
        (void) strcpy(row->options, text);
        return 0;
}

int session_move_plan(const struct session *session, json_t *json, struct registry_session *ret_row, struct err *err) {
        memcpy(ret_row, &session->row, sizeof(*ret_row));
        return change_row(session, json, ret_row, err);
}

int session_move_engine(struct session **session, json_t *json, struct err *err) {
        struct session *old = *session;
        struct session_manager *manager = old->manager;
        static struct registry_session row; /* large: not on the stack */
        if (old->kernel || old->runs || old->install || old->caller)
                return err_set(err, ERR_BUSY, "session %s has a box: hibernate it first, then move it", old->row.name);
        memcpy(&row, &old->row, offsetof(struct registry_session, options));
        (void) snprintf(row.options, sizeof(row.options), "%s", old->row.options);
        if (change_row(old, json, &row, err) < 0 ||
            registry_set_engine(manager->registry, row.id, row.image, row.options, err) < 0)
                return -1;
        (void) session_file_write(old->state_dir, &row, NULL); /* a copy, for when the registry is lost */
        session_free(old);
        *session = session_make(manager, &row, false, err);
        if (!*session)
                return -1;
        if (!(*session)->is_remote && recovery_settle_session(*session, err) < 0)
                daemon_log("%s", err->message); /* its state is right: it had no box */
        return 0;
}
