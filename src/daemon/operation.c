#include "daemon/operation.h"

#include <string.h>

#include "base/memory.h"
#include "session/caller.h"
#include "session/serve_options.h"
#include "session/session.h"

const char *operation_text(json_t *json, const char *key, struct err *err) {
        const char *text = json_string_value(json_object_get(json, key));
        if (!text)
                (void) err_set(err, ERR_USAGE, "\"%s\" must be given, as text", key);
        return text;
}

struct session *operation_session(struct caller *caller, json_t *json, struct err *err) {
        const char *name = operation_text(json, "session", err);
        struct session *session = name ? session_find(caller->manager, caller->owner, name) : NULL;
        if (name && !session && !caller_is_operator(caller))
                (void) err_set(err, ERR_NOT_FOUND,
                               "there is no sandbox \"%.100s\"; make it with create, or run something in it", name);
        else if (name && !session)
                (void) err_set(err, ERR_NOT_FOUND,
                               "there is no session \"%.100s\"; `glovebox session ls` shows those there are", name);
        return session;
}

int operation_run(struct caller *caller, json_t *json, struct err *err) {
        const struct operation *const tables[] = { operations_run, operations_file, operations_session,
                                                          operations_daemon, operations_install,
                                                          operations_process,
                                                          caller->manager->options->front_operations };
        const char *name = operation_text(json, "op", err);
        if (!name)
                return -1;
        for (size_t i = 0; i < ELEMENTS(tables); i++)
                for (const struct operation *row = tables[i]; row && row->name; row++)
                        if (strcmp(row->name, name) == 0) {
                                caller_begin(caller, row->name, json_string_value(json_object_get(json, "session")));
                                return row->run(caller, json, err);
                        }
        return err_set(err, ERR_USAGE, "there is no operation \"%.60s\"; docs/PROTOCOL.md lists them", name);
}
