/* Whatever the scanner takes, a parser takes, however it is cut into pieces; and the members are where it says. */
#include "base/json_scan.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/memory.h"
#include "tap.h"

static const char *const wanted[] = { "id", "status", "result", NULL };

static const char *const good[] = {
        "{}",
        " { } ",
        "{\"a\":[]}",
        "{\"a\":[1,2,{\"b\":null}],\"c\":true,\"d\":false}",
        "{\"a\":-0.5e+10}",
        "{\"a\":0,\"b\":10,\"c\":1.25,\"d\":1e5,\"e\":-7E-2}",
        "{\"a\":\"\\u00e4\\n\\\\\\\"\\/\"}",
        "{\"a\":\"\\ud83d\\ude00\"}",
        "{\"a\":\"\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\"}",
        "{\"a\":{\"a\":{\"a\":[[[]]]}}}",
        "{\"id\":\"x\",\"status\":\"ok\",\"result\":{\"text/plain\":\"2\"}}",
        " {\"a\" :  1 , \"b\":[ 1 , 2 ] } ",
        "{\"a\":\"\\u0000\"}",
};

static const char *const bad[] = {
        "",
        "[]",
        "1",
        "null",
        "\"x\"",
        "{",
        "}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":[1,]}",
        "{\"a\":[}",
        "{\"a\":[1]]}",
        "{}{}",
        "{} x",
        "{\"a\":01}",
        "{\"a\":-}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":1e}",
        "{\"a\":1e+}",
        "{\"a\":+1}",
        "{\"a\":tru}",
        "{\"a\":nul}",
        "{\"a\":truee}",
        "{'a':1}",
        "{a:1}",
        "{\"a\" 1}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\ud83d\"}",
        "{\"a\":\"\\ude00\"}",
        "{\"a\":\"\\ud83d\\n\"}",
        "{\"a\":\"\\ud83d\\ud83d\"}",
        "{\"a\":\"\xc3\"}",
        "{\"a\":\"\xc0\x80\"}",
        "{\"a\":\"\xed\xa0\x80\"}",
        "{\"a\":\"\xf4\x90\x80\x80\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":NaN}",
        "{\"a\":\"x}",
        "{\"id\":1,\"id\":2}",
        "{\"\\u0000\":1}",
        "{\"a\":1]",
        "{\"a\":\"\x80\"}",
        "{\"a\":[1 2]}",
        "{\"a\":\n1}",
        "{\"a\":1}\r\n",
};

static bool scan_in_pieces(const char *text, size_t size, size_t piece, struct json_scan *scan) {
        json_scan_start(scan, wanted);
        for (size_t at = 0; at < size; at += piece)
                if (!json_scan_feed(scan, text + at, size - at < piece ? size - at : piece))
                        return false;
        return json_scan_is_object(scan);
}

static bool scan_all_ways(const char *text, bool expected) {
        struct json_scan scan;
        for (size_t piece = 1; piece <= strlen(text) + 1; piece++)
                if (scan_in_pieces(text, strlen(text), piece, &scan) != expected)
                        return false;
        return true;
}

/* Small damage to good texts: what the scanner takes, the library takes as well. */
static void check_against_the_library(void) {
        unsigned wrong = 0, taken = 0;
        srand(7);
        for (int i = 0; i < 200000; i++) {
                char text[128];
                const char *from = good[(size_t) rand() % ELEMENTS(good)];
                size_t size = strlen(from);
                memcpy(text, from, size + 1);
                for (int changes = rand() % 3; changes >= 0 && size > 0; changes--)
                        text[(size_t) rand() % size] = "{}[]\",:\\u01e.-+ntd\x80\xc3\xbc"[rand() % 21];
                struct json_scan scan;
                if (!scan_in_pieces(text, size, 1 + (size_t) rand() % 9, &scan))
                        continue;
                taken++;
                json_t *json = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
                wrong += !json_is_object(json);
                json_decref(json);
        }
        ok(wrong == 0 && taken > 1000, "%u damaged texts are taken, by the library, too", taken);
}

static void check_members(void) {
        static const char text[] =
                " {\"id\" : \"x\" , \"status\":-12,\"other\":{\"result\":1},\"result\":[{\"id\":2}] }";
        struct json_scan scan;
        ok(scan_in_pieces(text, sizeof(text) - 1, 3, &scan), "a text with members");
        static const char *const values[] = { "\"x\"", "-12", "[{\"id\":2}]" };
        for (size_t i = 0; i < ELEMENTS(values); i++)
                ok(scan.found[i].size == strlen(values[i]) &&
                           memcmp(text + scan.found[i].at, values[i], scan.found[i].size) == 0,
                   "%s is where it is", wanted[i]);
}

static void check_depth(void) {
        char text[2 * JSON_SCAN_DEPTH_MAX + 16];
        for (int depth = JSON_SCAN_DEPTH_MAX - 1; depth <= JSON_SCAN_DEPTH_MAX; depth++) {
                char *at = stpcpy(text, "{\"a\":");
                memset(at, '[', (size_t) depth);
                memset(at + depth, ']', (size_t) depth);
                at[2 * depth] = '}';
                struct json_scan scan;
                bool taken = scan_in_pieces(text, 6 + 2 * (size_t) depth, 64, &scan);
                ok(taken == (depth < JSON_SCAN_DEPTH_MAX), "%d levels are %s", depth + 1, taken ? "taken" : "refused");
        }
}

int main(void) {
        for (size_t i = 0; i < ELEMENTS(good); i++)
                ok(scan_all_ways(good[i], true), "%s", good[i]);
        for (size_t i = 0; i < ELEMENTS(bad); i++)
                ok(scan_all_ways(bad[i], false), "refused: %zu", i);
        check_members();
        check_depth();
        check_against_the_library();
        return done_testing();
}
