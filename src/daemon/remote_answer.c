#include "daemon/remote_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_scan.h"
#include "session/manager.h"
#include "session/remote_place.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_info.h"

static enum err_code code_of(const char *name) {
        for (int code = 1; name && code < ERR_CODES; code++)
                if (strcmp(err_code_name((enum err_code) code), name) == 0)
                        return (enum err_code) code;
        return ERR_SYSTEM;
}

struct err remote_answer_refusal(const json_t *error, const char *name_there, const char *name_here) {
        const char *words = json_string_value(json_object_get(error, "message"));
        struct err err = { .code = code_of(json_string_value(json_object_get(error, "code"))) };
        words = words ? words : "the remote refused, and does not say why";
        const char *found = *name_there ? strstr(words, name_there) : NULL;
        if (!found)
                (void) snprintf(err.message, sizeof(err.message), "%s", words);
        else
                (void) snprintf(err.message, sizeof(err.message), "%.*s%s%s", (int) (found - words), words, name_here,
                                found + strlen(name_there));
        return err;
}

/* The report names the isolation of the instance, not that of the box in it. */
static void shape_report(json_t *report, const struct remote_place *place) {
        const struct engine *engine = engine_find(place->order.engine, NULL);
        (void) json_object_set_new(report, "isolation",
                                   json_string(engine_isolation_name(engine ? engine->isolation : ENGINE_CONTAINER)));
        (void) json_object_set_new(report, "image", json_string(place->order.image));
}

void remote_answer_shape_session(json_t *answer, const struct session *session, bool is_new) {
        json_t *report = json_object_get(answer, "isolation");
        const char *engine = json_string_value(json_object_get(answer, "engine"));
        const struct remote_place place = remote_place_of(session);
        const char *name = place.is_instance ? place.order.engine : ENGINE_REMOTE;
        json_t *remote = json_pack("{s:s, s:s}", place.is_instance ? "instance" : "url",
                                   remote_place_words(session->manager, &place), "engine", engine ? engine : "");
        (void) json_object_set_new(answer, "id", json_string(session->row.id));
        (void) json_object_set_new(answer, "name", json_string(session->row.name));
        (void) json_object_set_new(answer, "engine", json_string(name));
        if (place.is_instance)
                (void) json_object_set_new(answer, "image", json_string(session->row.image));
        (void) json_object_set_new(answer, "workspace", json_string(""));
        (void) json_object_set_new(answer, "pid", json_integer(0));
        (void) json_object_del(answer, "key");
        if (*session->row.owner)
                (void) json_object_set_new(answer, "key", json_string(session->row.owner));
        if (report) {
                (void) json_object_set_new(report, "engine", json_string(name));
                if (place.is_instance)
                        shape_report(report, &place);
                (void) json_object_set(report, "remote", remote);
        }
        (void) json_object_set_new(answer, "remote", remote);
        if (json_object_get(answer, "created")) /* here, not there: it may have been made by a request that broke */
                (void) json_object_set_new(answer, "created", json_boolean(is_new));
}

json_t *remote_answer_describe_new(const struct session *session) {
        static const struct session_info_form form = { .hides_host = true };
        const struct session_info info = session_info_of(session);
        json_t *answer = session_info_to_json(&info, &form);
        (void) json_object_set_new(answer, "state", json_string("new"));
        (void) json_object_set_new(answer, "runs", json_array());
        (void) json_object_set_new(answer, "isolation", json_object());
        return answer;
}

char *remote_answer_copy_text(const char *bytes, size_t size, size_t *ret_size, struct err *err) {
        static const char ok[] = "{\"ok\":true,";
        static const char *const none[] = { NULL };
        struct json_scan scan;
        json_scan_start(&scan, none);
        if (size < sizeof(ok) || memcmp(bytes, ok, sizeof(ok) - 1) != 0 || !json_scan_feed(&scan, bytes, size) ||
            !json_scan_is_object(&scan)) {
                (void) err_set(err, ERR_PROTOCOL, "the remote's answer is damaged");
                return NULL;
        }
        size_t lead = sizeof(ok) - 2;
        char *text = malloc(size - lead);
        if (!text) {
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                return NULL;
        }
        memcpy(text, bytes + lead, size - lead);
        text[0] = '{';
        *ret_size = size - lead;
        return text;
}
