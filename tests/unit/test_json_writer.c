#include <limits.h>

#include "base/json_writer.h"
#include "tap.h"

static const struct {
        const char *what, *bytes;
        size_t size;
        const char *expected;
} strings[] = {
        { "nothing", "", 0, "\"\"" },
        { "letters", "abc", 3, "\"abc\"" },
        { "what JSON escapes", "a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\"" },
        { "control characters", "\b\t\n\f\r\x01\x1f\x7f", 8, "\"\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\"" },
        { "a NUL", "a\0b", 3, "\"a\\u0000b\"" },
        { "UTF-8", "z\xc3\xbcrich", 7, "\"z\xc3\xbcrich\"" },
        { "what is no UTF-8",
          "12345678\xff"
          "9",
          10,
          "\"12345678\xef\xbf\xbd"
          "9\"" },
        { "a character that is cut off", "x\xe2\x82", 3, "\"x\xef\xbf\xbd\"" },
};

static void is_written(struct json_writer *text, const char *expected, const char *what) {
        json_writer_put(text, "", 1);
        is_text(text->failed ? "failed" : text->bytes, expected, "%s", what);
        json_writer_release(text);
}

static void test_values(void) {
        struct json_writer text = { 0 };
        json_t *value = json_pack("{s:s, s:[i, n, {s:f}], s:{}, s:b, s:[], s:I}", "a", "\"", "b", 1, "c", 0.5, "d", "e",
                                  1, "f", "g", (json_int_t) -5);
        json_writer_put_value(&text, value);
        char *expected = json_dumps(value, JSON_COMPACT);
        is_written(&text, expected, "a value of every kind, as the library writes it");
        free(expected);
        json_decref(value);
        json_writer_put_value(&text, NULL);
        is_written(&text, "null", "no value");
        json_writer_put_number(&text, 0);
        json_writer_put_literal(&text, " ");
        json_writer_put_number(&text, INT64_MIN);
        json_writer_put_literal(&text, " ");
        json_writer_put_number(&text, INT64_MAX);
        is_written(&text, "0 -9223372036854775808 9223372036854775807", "numbers from end to end");
}

int main(void) {
        for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
                struct json_writer text = { 0 };
                json_writer_put_string(&text, strings[i].bytes, strings[i].size);
                is_written(&text, strings[i].expected, strings[i].what);
        }
        test_values();
        struct json_writer text = { 0 };
        json_writer_put_literal(&text, "a");
        json_writer_put(&text, "", SIZE_MAX / 2);
        json_writer_put_literal(&text, "b");
        ok(text.failed && text.size == 1, "what cannot be held is remembered as failed");
        json_writer_release(&text);
        return done_testing();
}
