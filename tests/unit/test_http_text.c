/* Queries, media types, ranges and multipart bodies. */
#include "http/media.h"
#include "http/multipart.h"
#include "http/query.h"
#include "http/range.h"
#include "tap.h"

static void test_query(void) {
        struct http_pairs pairs;
        struct err err;
        ok(http_query_parse("path=a%20b%2Fc+d&all&&x=1=2&%C3%BC=%E2%82%AC", &pairs, &err) == 0 && pairs.n == 4,
           "a query");
        is_text(http_query_find(&pairs, "path"), "a b/c d", "escapes and plus are decoded");
        is_text(http_query_find(&pairs, "all"), "", "a name alone has an empty value");
        is_text(http_query_find(&pairs, "x"), "1=2", "the first = divides");
        is_text(http_query_find(&pairs, "\xc3\xbc"), "\xe2\x82\xac", "UTF-8 in names and values");
        ok(!http_query_find(&pairs, "y"), "what is not there is not found");
        http_query_free(&pairs);
        ok(http_query_parse(NULL, &pairs, &err) == 0 && pairs.n == 0, "no query is an empty one");
        http_query_free(&pairs);
        static const char *const bad[] = { "a=%",         "a=%4", "a=%zz", "a=%00",   "a=%C0%80", "a=%ff",
                                           "a=%ED%A0%80", "=b",   "%ff=b", "a=1&a=2", "a=1&%61=2" };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                ok(http_query_parse(bad[i], &pairs, &err) < 0 && err.code == ERR_USAGE, "the query %s is refused",
                   bad[i]);
        char many[HTTP_QUERY_PAIRS_MAX * 8] = "";
        for (int i = 0; i <= HTTP_QUERY_PAIRS_MAX; i++)
                (void) sprintf(many + strlen(many), "&a%d", i);
        ok(http_query_parse(many, &pairs, &err) < 0, "too many parameters are refused");
}

static void test_media(void) {
        ok(http_type_is("application/json", "application/json"), "a type is itself");
        ok(http_type_is("Application/JSON ; charset=\"UTF-8\"", "application/json"), "in any case, with a charset");
        ok(!http_type_is("application/json; charset=latin1", "application/json"), "another charset is another type");
        ok(!http_type_is("application/jsonx", "application/json"), "a longer one is another");
        ok(!http_type_is("application/json, text/plain", "application/json"), "two types are none");
        ok(!http_type_is("application/json; x", "application/json"), "a broken parameter is refused");
        ok(!http_type_is(NULL, "application/json"), "no type is none");
        ok(http_accept_quality(NULL, "text/plain") == 1000, "no Accept takes anything");
        ok(http_accept_quality("text/*;q=0.5, */*;q=0.1", "text/plain") == 500, "the more specific range decides");
        ok(http_accept_quality("*/*, text/plain;q=0", "text/plain") == 0, "and can exclude");
        ok(http_accept_quality("text/event-stream", "application/json") == 0, "another type is not wanted");
        ok(http_accept_quality("a/b;q=2, */*;q=0.125", "a/b") == 125, "a broken range is passed over");
}

static void test_range(void) {
        static const struct {
                const char *range;
                enum http_range_kind kind;
                uint64_t first, length;
        } rows[] = {
                { NULL, HTTP_RANGE_ALL, 0, 0 },
                { "bytes=0-3", HTTP_RANGE_PART, 0, 4 },
                { "bytes=4-", HTTP_RANGE_PART, 4, 6 },
                { "bytes=-3", HTTP_RANGE_PART, 7, 3 },
                { "bytes=-30", HTTP_RANGE_PART, 0, 10 },
                { "bytes=9-99", HTTP_RANGE_PART, 9, 1 },
                { "bytes=10-", HTTP_RANGE_NONE, 0, 0 },
                { "bytes=-0", HTTP_RANGE_NONE, 0, 0 },
                { "bytes=3-2", HTTP_RANGE_ALL, 0, 0 },
                { "bytes=0-1,3-4", HTTP_RANGE_ALL, 0, 0 },
                { "bytes=", HTTP_RANGE_ALL, 0, 0 },
                { "bytes", HTTP_RANGE_ALL, 0, 0 },
                { "bytes=-", HTTP_RANGE_ALL, 0, 0 },
                { "lines=0-3", HTTP_RANGE_ALL, 0, 0 },
                { "bytes=0-9999999999999999999", HTTP_RANGE_ALL, 0, 0 },
        };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                uint64_t first = 0, length = 0;
                enum http_range_kind kind = http_range_parse(rows[i].range, 10, &first, &length);
                ok(kind == rows[i].kind && first == rows[i].first && length == rows[i].length, "range %s of 10 bytes",
                   rows[i].range ? rows[i].range : "(none)");
        }
        uint64_t first, length;
        ok(http_range_parse("bytes=0-", 0, &first, &length) == HTTP_RANGE_NONE, "nothing lies in an empty file");
}

/* ---- multipart ---- */

static char told[4096];

static int on_part(void *context, const struct multipart_part *part, struct err *err) {
        (void) context;
        (void) err;
        (void) sprintf(told + strlen(told), "[%s|%s|%s|", part->name, part->file_name ? part->file_name : "-",
                       part->type ? part->type : "-");
        return 0;
}

static int on_data(void *context, const char *bytes, size_t size, struct err *err) {
        (void) context;
        (void) err;
        (void) strncat(told, bytes, size);
        return 0;
}

static int on_end(void *context, struct err *err) {
        (void) context;
        (void) err;
        (void) strcat(told, "]");
        return 0;
}

static int parse(const char *type, const char *body, size_t piece) {
        static const struct multipart_events events = { on_part, on_data, on_end };
        struct multipart *multipart = NULL;
        struct err err;
        told[0] = '\0';
        if (multipart_open(type, &events, NULL, &multipart, &err) < 0)
                return -2;
        int code = 0;
        for (size_t at = 0, size = strlen(body); at < size && code == 0; at += piece)
                code = multipart_feed(multipart, body + at, size - at < piece ? size - at : piece, &err);
        if (code == 0)
                code = multipart_finish(multipart, &err);
        multipart_close(multipart);
        return code;
}

#define TYPE "multipart/form-data; boundary=XX"
#define PART(parameters) "--XX\r\nContent-Disposition: form-data; " parameters "\r\n\r\n"

static void test_multipart(void) {
        static const struct {
                const char *what, *body, *told;
        } rows[] = {
                { "one field", PART("name=a") "hello\r\n--XX--\r\n", "[a|-|-|hello]" },
                { "no line break at the very end", PART("name=a") "hello\r\n--XX--", "[a|-|-|hello]" },
                { "an empty part", PART("name=\"a\"") "\r\n--XX--\r\n", "[a|-|-|]" },
                { "two parts, a file",
                  PART("name=a") "1\r\n--XX\r\ncontent-disposition: form-data; filename=\"x \\\"y\"; name=f\r\n"
                                 "Content-Type: text/csv\r\n\r\n2\r\n--XX--\r\n",
                  "[a|-|-|1][f|x \"y|text/csv|2]" },
                { "data that look like a boundary", PART("name=a") "\r\n--X\r\n-\r\r\n\r\n--XY--XX\r\n--XX--\r\n",
                  "[a|-|-|\r\n--X\r\n-\r\r\n\r\n--XY--XX]" },
                { "a browser's quote", PART("name=\"a%22b%25\"") "\r\n--XX--\r\n", "[a\"b%25|-|-|]" },
                { "nothing but the end", "--XX--\r\n", "" },
        };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                bool is_good = true;
                for (size_t piece = 1; piece < 60; piece++)
                        is_good = is_good && parse(TYPE, rows[i].body, piece) == 0 && strcmp(told, rows[i].told) == 0;
                ok(is_good, "multipart: %s", rows[i].what);
        }
        static const char *const bad[] = {
                "",
                "--XX",
                "x--XX--\r\n",
                "\r\n--XX--\r\nmore",
                "--XX--more",
                "--XX \r\n",
                PART("name=a") "cut",
                PART("name=a") "\r\n--XX",
                PART("filename=a") "\r\n--XX--",
                PART("name=a; name=b") "\r\n--XX--",
                PART("name=\"a\xff\"") "\r\n--XX--",
                PART("name=a; filename*=UTF-8''b") "\r\n--XX--",
                "--XX\r\nA: b\r\n\r\n\r\n--XX--",
                "--XX\r\nContent-Disposition: attachment; name=a\r\n\r\n\r\n--XX--",
                "--XX\r\n\r\n\r\n--XX--",
                PART("name=\"a%0D%0A\"") "\r\n--XX--",
                PART("name=a\nB: c") "\r\n--XX--",
        };
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                bool is_refused = true;
                for (size_t piece = 1; piece < 60; piece++)
                        is_refused = is_refused && parse(TYPE, bad[i], piece) == -1;
                ok(is_refused, "multipart: malformed body %zu is refused", i);
        }
        static const char *const types[] = { "multipart/form-data",
                                             "multipart/form-data; boundary=", "text/plain; boundary=XX",
                                             "multipart/form-data; boundary=a; boundary=b",
                                             "multipart/form-data; boundary=\"a\r\n\"" };
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
                ok(parse(types[i], "", 1) == -2, "multipart: type %zu is refused", i);
        ok(parse("Multipart/Form-Data; charset=utf-8; boundary=\"X X\"", "--X X--", 1) == 0, "a quoted boundary");
}

int main(void) {
        test_query();
        test_media();
        test_range();
        test_multipart();
        return done_testing();
}
