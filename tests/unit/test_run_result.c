/* The frequent kind of RESULT, read without a parser: whatever it takes must be what a parser would have understood. */
#include "base/memory.h"
#include "session/run.h"
#include "session/run_result.h"
#include "tap.h"

#define ID "0123456789abcdef0123456789abcdef"
#define BEFORE "{\"id\":\"" ID "\",\"status\":\"ok\",\"exit_code\":0,\"execution_count\":7,\"result\":"
#define AFTER ",\"displays\":0,\"error\":null,\"figures\":[]}"

static const struct {
        const char *what, *payload, *value; /* NULL: left to the parser */
} answers[] = {
        { "no value", BEFORE "null" AFTER, "null" },
        { "a plain value", BEFORE "{\"text/plain\":\"2\"}" AFTER, "{\"text/plain\":\"2\"}" },
        { "an empty one", BEFORE "{\"text/plain\":\"\"}" AFTER, "{\"text/plain\":\"\"}" },
        { "an escape", BEFORE "{\"text/plain\":\"\\n\"}" AFTER, NULL },
        { "a control character", BEFORE "{\"text/plain\":\"\n\"}" AFTER, NULL },
        { "beyond ASCII", BEFORE "{\"text/plain\":\"\xc3\xbc\"}" AFTER, NULL },
        { "a second form", BEFORE "{\"text/plain\":\"2\",\"text/html\":\"2\"}" AFTER, NULL },
        { "a value that ends the object early", BEFORE "{\"text/plain\":\"2\"}}" AFTER, NULL },
        { "another field inside", BEFORE "null,\"x\":1" AFTER, NULL },
        { "something behind it", BEFORE "null" AFTER " ", NULL },
        { "it is cut off", BEFORE "null,\"displays\":0,\"error\":null,\"figures\":[", NULL },
        { "it is cut off within the value", BEFORE "{\"text/plain\":\"2", NULL },
        { "nothing", "", NULL },
        { "figures", BEFORE "null,\"displays\":0,\"error\":null,\"figures\":[\"a\"]}", NULL },
        { "a count that is no number", BEFORE "null,\"displays\":-,\"error\":null,\"figures\":[]}", NULL },
        { "a count without end", BEFORE "null,\"displays\":1111111111111111111111,\"error\":null,\"figures\":[]}",
          NULL },
        { "an error", BEFORE "null,\"displays\":0,\"error\":{},\"figures\":[]}", NULL },
        { "another run",
          "{\"id\":\"1123456789abcdef0123456789abcdef\",\"status\":\"ok\",\"exit_code\":0,\"execution_count\":7,"
          "\"result\":null" AFTER,
          NULL },
        { "another status",
          "{\"id\":\"" ID "\",\"status\":\"exit\",\"exit_code\":0,\"execution_count\":7,\"result\":null" AFTER,
          NULL },
};

int main(void) {
        struct run run = { .id = ID };
        struct run_result result;
        for (size_t i = 0; i < ELEMENTS(answers); i++) {
                bool taken = run_result_judge_plain(&run, answers[i].payload, strlen(answers[i].payload), &result);
                ok(taken == (answers[i].value != NULL), "%s is %s", answers[i].what,
                   taken ? "taken" : "left to the parser");
                if (!taken)
                        continue;
                struct json_text text = { 0 };
                size_t small;
                run_result_write(&result, &text, &small);
                json_text_put_literal(&text, "}");
                json_t *json = json_loadb(text.bytes, text.size, JSON_REJECT_DUPLICATES, NULL);
                json_t *value = json_loads(answers[i].value, JSON_DECODE_ANY, NULL);
                ok(json_equal(json_object_get(json, "result"), value), "the value is what it was");
                is_text(json_string_value(json_object_get(json, "status")), "ok", "and all went well");
                json_decref(json);
                json_decref(value);
                json_text_release(&text);
        }
        run.reason = RUN_REASON_TIMEOUT;
        ok(!run_result_judge_plain(&run, answers[0].payload, strlen(answers[0].payload), &result),
           "a run that was told to end is judged by the rules for those");
        return done_testing();
}
