/* The JSON form of a run's result. */
#include "cli/result.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "tap.h"

/* Expected values are what Python's bytes.decode("utf-8", "replace") gives. */
static const struct {
        const char *bytes, *text, *what;
} repairs[] = {
        { "plain", "plain", "ASCII stays" },
        { "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "well-formed UTF-8 stays" },
        { "a\xff"
          "b",
          "a\xef\xbf\xbd"
          "b",
          "a byte that never occurs" },
        { "\xe2\x82", "\xef\xbf\xbd", "a character cut at the end is one mark" },
        { "\xe2\x82x", "\xef\xbf\xbdx", "a character cut in the middle is one mark, and what follows stays" },
        { "\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd", "an overlong form is not taken" },
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "a surrogate is not taken" },
        { "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "past the last character" },
};

static void test_repairs(void) {
        for (size_t i = 0; i < ELEMENTS(repairs); i++) {
                _cleanup_free_ char *text = NULL;
                size_t size = 0;
                ok(utf8_repair(repairs[i].bytes, strlen(repairs[i].bytes), &text, &size) == 0 &&
                           strcmp(text, repairs[i].text) == 0 && size == strlen(text),
                   "%s", repairs[i].what);
        }
}

static const char *text_at(json_t *object, const char *key) {
        const char *text = json_string_value(json_object_get(object, key));
        return text ? text : "(not a string)";
}

static void test_whole_result(void) {
        const struct run_error error = { .name = "memory_limit", .message = "memory limit 512 MiB reached" };
        const struct run_artifact artifact = { .path = "/workspace/a\xff.png", .mime = "image/png", .size = 5 };
        json_t *isolation = json_pack("{s:s}", "engine", "native");
        const struct run_result result = {
                .run_id = "r1",
                .status = RUN_OOM,
                .output = { "a\0\xff", 3, 17 },
                .exit_code = 137,
                .oom_killed = true,
                .duration_ms = 12,
                .cpu_ms = 7,
                .memory_peak_bytes = 1ull << 40,
                .error = &error,
                .artifacts = &artifact,
                .n_artifacts = 1,
                .isolation = isolation,
        };
        json_t *json = run_result_to_json(&result);
        ok(json != NULL, "a result becomes JSON");
        is_text(text_at(json, "status"), "oom", "status");
        is_text(text_at(json, "run_id"), "r1", "run_id");
        ok(json_string_length(json_object_get(json, "stdout")) == 5, "NUL and a foreign byte are both kept in place");
        ok(json_integer_value(json_object_get(json, "stdout_cut_bytes")) == 17, "how much was cut");
        is_text(text_at(json, "stderr"), "", "no output is an empty string");
        ok(json_is_true(json_object_get(json, "oom_killed")) && json_is_false(json_object_get(json, "timed_out")),
           "oom_killed, timed_out");
        ok(json_integer_value(json_object_get(json_object_get(json, "usage"), "memory_peak_bytes")) == 1ll << 40,
           "sizes are not cut to 32 bits");
        is_text(text_at(json_object_get(json, "error"), "name"), "memory_limit", "error");
        json_t *first = json_array_get(json_object_get(json, "artifacts"), 0);
        is_text(text_at(first, "path"), "/workspace/a\xef\xbf\xbd.png", "a path of foreign bytes");
        ok(json_is_null(json_object_get(first, "host_path")), "an artifact that is gone has no place on the host");
        ok(json_object_get(json, "isolation") == isolation, "the isolation report is passed on");
        json_decref(json);
        ok(isolation->refcount == 1, "what was borrowed is given back");
        json_decref(isolation);
}

static void test_empty_result(void) {
        json_t *json = run_result_to_json(&(struct run_result) { .status = RUN_OK });
        ok(json_is_null(json_object_get(json, "error")) && json_is_null(json_object_get(json, "isolation")),
           "what is absent is null");
        ok(json_array_size(json_object_get(json, "artifacts")) == 0, "no artifacts is an empty array");
        json_decref(json);
}

int main(void) {
        test_repairs();
        test_whole_result();
        test_empty_result();
        return done_testing();
}
