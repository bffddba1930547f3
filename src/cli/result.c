#include "cli/result.h"

#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

static const char *const status_names[RUN_STATUSES] = {
        [RUN_OK] = "ok",   [RUN_ERROR] = "error",   [RUN_TIMEOUT] = "timeout",
        [RUN_OOM] = "oom", [RUN_KILLED] = "killed", [RUN_INTERRUPTED] = "interrupted",
};

static const char *run_status_name(enum run_status status) {
        return status < RUN_STATUSES ? status_names[status] : "unknown";
}

static json_t *bytes_to_json(const char *bytes, size_t size) {
        json_t *text = json_stringn(bytes ? bytes : "", size);
        if (text)
                return text; /* the common case: jansson checked that it is UTF-8 */
        _cleanup_free_ char *repaired = NULL;
        size_t repaired_size;
        if (utf8_repair(bytes, size, &repaired, &repaired_size) < 0)
                return NULL;
        return json_stringn(repaired, repaired_size);
}

static json_t *text_to_json(const char *text) {
        return text ? bytes_to_json(text, strlen(text)) : json_null();
}

/* Takes `value`. NULL means out of memory: sets *failed, which is reported once, at the end. */
static void result_put(json_t *object, const char *key, json_t *value, bool *failed) {
        if (!value || json_object_set_new(object, key, value) < 0)
                *failed = true;
}

static json_t *error_to_json(const struct run_error *error, bool *failed) {
        if (!error)
                return json_null();
        json_t *object = json_object();
        result_put(object, "name", text_to_json(error->name), failed);
        result_put(object, "value", text_to_json(error->value), failed);
        result_put(object, "message", text_to_json(error->message), failed);
        result_put(object, "traceback", text_to_json(error->traceback), failed);
        return object;
}

static json_t *artifacts_to_json(const struct run_result *result, bool *failed) {
        json_t *array = json_array();
        for (size_t i = 0; i < result->n_artifacts; i++) {
                const struct run_artifact *artifact = &result->artifacts[i];
                json_t *object = json_object();
                result_put(object, "path", text_to_json(artifact->path), failed);
                result_put(object, "host_path", text_to_json(artifact->host_path), failed);
                result_put(object, "size", json_integer((json_int_t) artifact->size), failed);
                result_put(object, "mime", text_to_json(artifact->mime), failed);
                if (json_array_append_new(array, object) < 0)
                        *failed = true;
        }
        return array;
}

static json_t *usage_to_json(const struct run_result *result, bool *failed) {
        json_t *object = json_object();
        result_put(object, "cpu_ms", json_integer((json_int_t) result->cpu_ms), failed);
        result_put(object, "memory_peak_bytes", json_integer((json_int_t) result->memory_peak_bytes), failed);
        return object;
}

json_t *run_result_to_json(const struct run_result *result) {
        bool failed = false;
        json_t *object = json_object();
        result_put(object, "run_id", text_to_json(result->run_id), &failed);
        result_put(object, "status", json_string(run_status_name(result->status)), &failed);
        result_put(object, "exit_code", json_integer(result->exit_code), &failed);
        result_put(object, "timed_out", json_boolean(result->timed_out), &failed);
        result_put(object, "oom_killed", json_boolean(result->oom_killed), &failed);
        result_put(object, "duration_ms", json_integer((json_int_t) result->duration_ms), &failed);
        result_put(object, "stdout", bytes_to_json(result->output.bytes, result->output.size), &failed);
        result_put(object, "stdout_cut_bytes", json_integer((json_int_t) result->output.cut_bytes), &failed);
        result_put(object, "stderr", bytes_to_json(result->error_output.bytes, result->error_output.size), &failed);
        result_put(object, "stderr_cut_bytes", json_integer((json_int_t) result->error_output.cut_bytes), &failed);
        result_put(object, "result", result->value ? json_incref(result->value) : json_null(), &failed);
        result_put(object, "displays", result->displays ? json_incref(result->displays) : json_array(), &failed);
        result_put(object, "error", error_to_json(result->error, &failed), &failed);
        result_put(object, "artifacts", artifacts_to_json(result, &failed), &failed);
        result_put(object, "artifacts_cut", json_boolean(result->artifacts_cut), &failed);
        result_put(object, "usage", usage_to_json(result, &failed), &failed);
        result_put(object, "isolation", result->isolation ? json_incref(result->isolation) : json_null(), &failed);
        if (result->warning)
                result_put(object, "warning", text_to_json(result->warning), &failed);
        if (!failed)
                return object;
        json_decref(object);
        return NULL;
}
