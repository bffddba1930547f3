#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/json_plain.h"
#include "tap.h"

static const struct {
        const char *what, *text;
        bool is_plain;
} requests[] = {
        { "a run", "{\"op\":\"execute\",\"code\":\"1+1\",\"session\":\"s\"}", true },
        { "with spaces", " { \"op\" : \"execute\" ,\n\t\"code\" : \"x\" } \r\n", true },
        { "escapes", "{\"code\":\"a\\n\\tb\\\"c\\\\d\\/e\\b\\f\\r\"}", true },
        { "UTF-8", "{\"code\":\"z\xc3\xbcrich \xf0\x9f\x98\x80\\n\xc3\xbc\"}", true },
        { "numbers", "{\"a\":0,\"b\":7,\"c\":123456789012345}", true },
        { "words", "{\"a\":true,\"b\":false,\"c\":null}", true },
        { "an empty text", "{\"a\":\"\"}", true },
        { "nothing in it", "{}", false },
        { "no bytes", "", false },
        { "a longer number", "{\"a\":1234567890123456}", false },
        { "a fraction", "{\"a\":1.5}", false },
        { "an exponent", "{\"a\":1e5}", false },
        { "a negative one", "{\"a\":-1}", false },
        { "a leading zero", "{\"a\":01}", false },
        { "two values", "{\"a\":1 2}", false },
        { "an escape with four digits", "{\"a\":\"\\u00fc\"}", false },
        { "a NUL by escape", "{\"a\":\"\\u0000\"}", false },
        { "an unknown escape", "{\"a\":\"\\x41\"}", false },
        { "an escape that is cut off", "{\"a\":\"\\", false },
        { "a text that is cut off", "{\"a\":\"b", false },
        { "a bare newline in a text", "{\"a\":\"b\nc\"}", false },
        { "what is no UTF-8", "{\"a\":\"\xff\"}", false },
        { "half of a character", "{\"a\":\"\xc3\"}", false },
        { "a surrogate", "{\"a\":\"\xed\xa0\x80\"}", false },
        { "a list", "{\"a\":[]}", false },
        { "an object", "{\"a\":{}}", false },
        { "the same key twice", "{\"a\":1,\"a\":1}", false },
        { "a key with an escape", "{\"\\n\":1}", false },
        { "no key", "{:1}", false },
        { "no value", "{\"a\":}", false },
        { "no colon", "{\"a\" 1}", false },
        { "a comma too many", "{\"a\":1,}", false },
        { "no end", "{\"a\":1", false },
        { "more after the end", "{\"a\":1}}", false },
        { "a word and more", "{\"a\":truest}", false },
        { "a text alone", "\"a\"", false },
};

/* What it reads, the library reads in the same way. */
static bool agrees(const char *text, size_t size) {
        json_t *ours = json_plain_read(text, size);
        json_t *theirs = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
        bool same = !ours || (theirs && json_equal(ours, theirs));
        json_decref(ours);
        json_decref(theirs);
        return same;
}

/* Every byte of each of them, replaced by every other one; and each of them cut off anywhere. */
static void test_near_misses(void) {
        size_t n_wrong = 0, n_tried = 0;
        for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
                size_t size = strlen(requests[i].text);
                char *text = malloc(size + 1);
                for (size_t at = 0; at < size; at++) {
                        for (int byte = 0; byte < 256; byte++) {
                                memcpy(text, requests[i].text, size);
                                text[at] = (char) byte;
                                n_wrong += !agrees(text, size);
                                n_tried++;
                        }
                        n_wrong += !agrees(requests[i].text, at);
                }
                free(text);
        }
        ok(n_wrong == 0, "%zu near misses: %zu read otherwise than by the library", n_tried, n_wrong);
}

static void test_long(void) {
        enum { SIZE = 1 << 20 };
        for (size_t with_escape = 0; with_escape < 2; with_escape++) {
                char *text = malloc(SIZE);
                memset(text, 'x', SIZE);
                memcpy(text, "{\"a\":\"", 6);
                memcpy(text + SIZE - 2, "\"}", 2);
                memcpy(text + SIZE / 2, with_escape ? "\\n" : "yy", 2);
                json_t *json = json_plain_read(text, SIZE);
                ok(with_escape ? !json : json && agrees(text, SIZE), "a megabyte %s",
                   with_escape ? "with an escape is left to the library" : "without escapes");
                json_decref(json);
                free(text);
        }
        for (size_t size = (16 << 10) - 4; size < (16 << 10) + 4; size++) {
                char *text = malloc(size + 20);
                int used = sprintf(text, "{\"a\":\"\\n");
                memset(text + used, 'x', size);
                memcpy(text + used + size, "\"}", 2);
                ok(agrees(text, (size_t) used + size + 2), "a text of %zu bytes after an escape", size);
                free(text);
        }
}

int main(void) {
        for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
                size_t size = strlen(requests[i].text);
                json_t *json = json_plain_read(requests[i].text, size);
                ok(!json == !requests[i].is_plain && agrees(requests[i].text, size), "%s", requests[i].what);
                json_decref(json);
        }
        test_near_misses();
        test_long();
        return done_testing();
}
