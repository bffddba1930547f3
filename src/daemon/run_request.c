/* A run as clients write it in JSON. */
#include <stddef.h>

#include "base/memory.h"
#include "daemon/operation.h"

static const struct {
        const char *key;
        size_t offset;
} text_members[] = {
        { "session", offsetof(struct run_request, session) },
        { "context", offsetof(struct run_request, context) },
        { "file", offsetof(struct run_request, file) },
        { "install_hint", offsetof(struct run_request, install_hint) },
        { "shell", offsetof(struct run_request, shell) },
        { "cwd", offsetof(struct run_request, cwd) },
        { "stdin", offsetof(struct run_request, stdin_path) },
        { "input", offsetof(struct run_request, input) },
        { "code", offsetof(struct run_request, code) },
        { "run_id", offsetof(struct run_request, run_id) },
        { "user", offsetof(struct run_request, user) },
        { "language", offsetof(struct run_request, language) },
        { "stdin_text", offsetof(struct run_request, stdin_text) },
};

/* null is as good as nothing. */
static json_t *get_member(json_t *json, const char *key) {
        json_t *value = json_object_get(json, key);
        return json_is_null(value) ? NULL : value;
}

static bool run_request_is_set(json_t *json, const char *key) {
        return json_is_true(json_object_get(json, key));
}

int run_request_read_json(json_t *json, struct run_request *ret_request, struct err *err) {
        json_int_t timeout_ms = json_integer_value(json_object_get(json, "timeout_ms"));
        struct run_request request = {
                .is_ephemeral = run_request_is_set(json, "ephemeral"),
                .must_exist = json_is_false(json_object_get(json, "create")),
                .code_size = json_string_length(json_object_get(json, "code")),
                .args = get_member(json, "args"),
                .argv = get_member(json, "argv"),
                .env = get_member(json, "env"),
                .files = get_member(json, "files"),
                .is_one_shot = run_request_is_set(json, "one_shot"),
                .wants_contents = run_request_is_set(json, "contents"),
                .is_not_counted = json_is_false(json_object_get(json, "store_history")),
                .timeout_ms = timeout_ms > 0 ? (uint64_t) timeout_ms : 0,
                .is_light = run_request_is_set(json, "light"),
                .stream = run_request_is_set(json, "stream"),
                .detach = run_request_is_set(json, "detach"),
                .cancel_on_disconnect = run_request_is_set(json, "cancel_on_disconnect"),
        };
        for (size_t i = 0; i < ELEMENTS(text_members); i++) {
                json_t *value = get_member(json, text_members[i].key);
                if (value && !json_is_string(value))
                        return err_set(err, ERR_USAGE, "\"%s\" must be given, as text", text_members[i].key);
                *(const char **) ((char *) &request + text_members[i].offset) = json_string_value(value);
        }
        *ret_request = request;
        return 0;
}
