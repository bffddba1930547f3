/* What a kernel answered becomes the text of a run's result: its values stay the text that they were. */
#include "base/memory.h"
#include "kernel/kernel_reply.h"
#include "session/run.h"
#include "session/run_result.h"
#include "tap.h"

#define ID "0123456789abcdef0123456789abcdef"

static const struct {
        const char *what, *payload, *status, *result, *error; /* error NULL: any */
        int exit_code;
} replies[] = {
        { "no value", "{\"id\":\"" ID "\",\"status\":\"ok\",\"exit_code\":0,\"result\":null,\"error\":null}", "ok",
          "null", "null", 0 },
        { "a value",
          "{\"id\":\"" ID
          "\",\"status\":\"ok\",\"exit_code\":0,\"execution_count\":7,\"result\":{\"text/plain\":\"\\u00fc 2\"}}",
          "ok", "{\"text/plain\":\"\\u00fc 2\"}", "null", 0 },
        { "an exception", "{\"status\":\"error\",\"exit_code\":1,\"error\":{\"name\":\"E\",\"traceback\":\"…\"}}",
          "error", "null", "{\"name\":\"E\",\"traceback\":\"…\"}", 1 },
        { "an exit", "{\"status\":\"exit\",\"exit_code\":3}", "error", "null", "null", 3 },
        { "an exit that went well", "{\"status\":\"exit\",\"exit_code\":0}", "ok", "null", "null", 0 },
        { "an interrupt", "{\"status\":\"interrupted\",\"exit_code\":130}", "interrupted", "null", "null", 130 },
        { "a refusal", "{\"ok\":false,\"error\":\"no such context\"}", "error", "null", NULL, 1 },
        { "nonsense", "{\"status\":{},\"exit_code\":\"many\",\"result\":5,\"error\":[]}", "error", "5", "[]", 0 },
        { "a number without end", "{\"status\":\"ok\",\"exit_code\":11111111111111111111111111}", "ok", "null", "null",
          0 },
        { "a status with an escape", "{\"status\":\"\\u006fk\"}", "error", "null", "null", 0 },
};

static json_t *judge(struct run *run, const char *payload) {
        struct json_scan scan;
        json_scan_start(&scan, kernel_field_names);
        if (!json_scan_feed(&scan, payload, strlen(payload)) || !json_scan_is_object(&scan))
                return NULL;
        const struct kernel_reply reply = kernel_reply_of(&scan, payload, strlen(payload));
        struct run_result result;
        struct json_writer text = { 0 };
        size_t small;
        run_result_judge(run, &reply, &result);
        run_result_write(&result, &text, &small);
        json_writer_put_literal(&text, "}");
        json_t *json = json_loadb(text.bytes, text.size, JSON_REJECT_DUPLICATES, NULL);
        json_writer_release(&text);
        run_result_release(&result);
        return json;
}

int main(void) {
        struct run run = { .id = ID };
        json_writer_put_literal(&run.displays, "{\"a\":1},{\"b\":2}");
        for (size_t i = 0; i < ELEMENTS(replies); i++) {
                json_t *json = judge(&run, replies[i].payload);
                json_t *value = json_loads(replies[i].result, JSON_DECODE_ANY, NULL);
                json_t *error = json_loads(replies[i].error ? replies[i].error : "null", JSON_DECODE_ANY, NULL);
                const char *status = json_string_value(json_object_get(json, "status"));
                is_text(status ? status : "(no JSON)", replies[i].status, "%s", replies[i].what);
                ok(json_equal(json_object_get(json, "result"), value), "its value is what it was");
                ok(!replies[i].error || json_equal(json_object_get(json, "error"), error), "and its error");
                ok(json_integer_value(json_object_get(json, "exit_code")) == replies[i].exit_code, "and its exit code");
                ok(json_array_size(json_object_get(json, "displays")) == 2, "what it showed is there");
                json_decref(json);
                json_decref(value);
                json_decref(error);
        }
        run.reason = RUN_REASON_TIMEOUT;
        json_t *json = judge(&run, replies[0].payload);
        is_text(json_string_value(json_object_get(json, "status")), "timeout", "a run that was requested to end");
        json_decref(json);
        json_writer_release(&run.displays);
        return done_testing();
}
