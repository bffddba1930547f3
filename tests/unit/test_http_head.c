/* The head of a request and the framing of its body: what is taken, what is refused, and that cuts do not matter. */
#include "http/body.h"
#include "http/head.h"
#include "http/host.h"
#include "tap.h"

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"

/* The status of a refusal, 0 when the head is whole, -1 when more is needed. */
static int parse(struct http_head *head, const char *bytes, size_t size, size_t piece) {
        struct http_refusal refusal = { 0 };
        bool is_done = false;
        http_head_reset(head);
        for (size_t at = 0; at < size && !is_done && !refusal.status;) {
                size_t n = size - at < piece ? size - at : piece;
                at += http_head_take(head, bytes + at, n, &is_done, &refusal);
        }
        return refusal.status ? refusal.status : is_done ? 0 : -1;
}

static const struct {
        const char *what;
        int status;
        const char *bytes;
        size_t size;
} rows[] = {
#define ROW(what, status, text) { what, status, text, sizeof(text) - 1 }
        ROW("a plain request is taken", 0, GET "\r\n"),
        ROW("HTTP/1.0 is taken", 0, "GET / HTTP/1.0\r\nHost: a\r\n\r\n"),
        ROW("a head without its end is waited for", -1, GET),
        ROW("spaces and tabs around a value are dropped", 0, GET "A: \t b \t\r\n\r\n"),
        ROW("an empty value is taken", 0, GET "A:\r\n\r\n"),
        ROW("two different lengths", 400, GET "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        ROW("two equal lengths", 400, GET "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
        ROW("a list of lengths", 400, GET "Content-Length: 1, 1\r\n\r\n"),
        ROW("a negative length", 400, GET "Content-Length: -5\r\n\r\n"),
        ROW("a length with a plus", 400, GET "Content-Length: +5\r\n\r\n"),
        ROW("a length with letters", 400, GET "Content-Length: 5abc\r\n\r\n"),
        ROW("an empty length", 400, GET "Content-Length:\r\n\r\n"),
        ROW("a length of 2^63", 413, GET "Content-Length: 9223372036854775808\r\n\r\n"),
        ROW("a length of 2^64 + 5", 413, GET "Content-Length: 18446744073709551621\r\n\r\n"),
        ROW("length and chunked", 400, GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ROW("chunked and length", 400, GET "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
        ROW("an encoding that only looks like chunked", 501, GET "Transfer-Encoding: xchunked\r\n\r\n"),
        ROW("two encodings in one", 501, GET "Transfer-Encoding: gzip, chunked\r\n\r\n"),
        ROW("chunked twice", 400, GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ROW("chunked in HTTP/1.0", 400, "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ROW("a space before the colon", 400, GET "Transfer-Encoding : chunked\r\n\r\n"),
        ROW("a control character in a name", 400, GET "A\x01: b\r\n\r\n"),
        ROW("a space in a name", 400, GET "A B: c\r\n\r\n"),
        ROW("an empty name", 400, GET ": c\r\n\r\n"),
        ROW("a line without a colon", 400, GET "A\r\n\r\n"),
        ROW("a bare LF after the request line", 400, "GET / HTTP/1.1\nHost: a\r\n\r\n"),
        ROW("a bare LF after a header", 400, GET "A: b\n\r\n"),
        ROW("a bare LF at the end", 400, GET "\n"),
        ROW("a bare CR in a value", 400, GET "A: b\rc\r\n\r\n"),
        ROW("two CR at the end of a line", 400, GET "A: b\r\r\n\r\n"),
        ROW("a NUL in a value", 400, GET "A: b\0c\r\n\r\n"),
        ROW("a NUL in the path", 400, "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ROW("an encoded NUL in the path", 400, "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ROW("a broken escape", 400, "GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n"),
        ROW("a folded header", 400, GET "A: b\r\n c\r\n\r\n"),
        ROW("no Host", 400, "GET / HTTP/1.1\r\n\r\n"),
        ROW("no Host in HTTP/1.0", 400, "GET / HTTP/1.0\r\n\r\n"),
        ROW("two Hosts", 400, GET "Host: a\r\n\r\n"),
        ROW("a Host with a path", 400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        ROW("two keys", 400, GET "Authorization: a\r\nAuthorization: b\r\n\r\n"),
        ROW("two spaces in the request line", 400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ROW("HTTP/0.9", 400, "GET /\r\n\r\n"),
        ROW("HTTP/2", 505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
        ROW("a lower-case version", 400, "GET / http/1.1\r\nHost: a\r\n\r\n"),
        ROW("something after the version", 505, "GET / HTTP/1.1x\r\nHost: a\r\n\r\n"),
        ROW("an absolute target", 400, "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        ROW("a target with a fragment", 400, "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n"),
        ROW("an empty first line", 400, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ROW("an unknown expectation", 417, GET "Expect: 200-ok\r\n\r\n"),
        ROW("Connection with a quote", 400, GET "Connection: \"close\"\r\n\r\n"),
};

static void test_rows(struct http_head *head) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                int got = parse(head, rows[i].bytes, rows[i].size, rows[i].size);
                bool is_same = true;
                for (size_t piece = 1; piece < 9; piece++)
                        is_same = is_same && parse(head, rows[i].bytes, rows[i].size, piece) == got;
                ok(got == rows[i].status && is_same, "%s: %d", rows[i].what, rows[i].status);
        }
}

static void test_values(struct http_head *head) {
        static const char text[] = "POST /a%20b?c=d HTTP/1.1\r\nhOST: [::1]:80\r\nAccept:  x \r\nContent-Length: 12\r\n"
                                   "Connection: x, CLOSE\r\nExpect: 100-Continue\r\n\r\nbody";
        bool is_done;
        struct http_refusal refusal;
        http_head_reset(head);
        size_t n = http_head_take(head, text, sizeof(text) - 1, &is_done, &refusal);
        ok(is_done && n == sizeof(text) - 1 - 4, "the body stays where it is");
        is_text(head->bytes, "POST", "the method");
        is_text(head->bytes + head->path, "/a%20b", "the path");
        is_text(head->bytes + head->query, "c=d", "the query");
        is_text(head->bytes + head->host, "[::1]:80", "the host");
        is_text(http_head_find(head, "ACCEPT"), "x", "a header, whatever its case");
        ok(head->length == 12 && head->wants_close && head->expects_continue, "length, close and continue are seen");
        ok(!http_head_find(head, "Acc"), "a part of a name is not the name");
}

static void fill(char *at, size_t size) {
        memset(at, 'x', size);
}

static void test_bounds(struct http_head *head) {
        static char text[128 << 10];
        (void) strcpy(text, "GET /");
        fill(text + 5, 9000);
        ok(parse(head, text, 9005, 100) == 414 && parse(head, text, 9005, 9005) == 414, "a long request line: 414");
        (void) strcpy(text, GET "A: ");
        size_t start = strlen(text);
        fill(text + start, 9000);
        ok(parse(head, text, start + 9000, 9000) == 431, "a long header: 431");
        size_t at = strlen(GET);
        (void) strcpy(text, GET);
        while (at < 60000) {
                (void) strcpy(text + at, "A: ");
                fill(text + at + 3, 4000);
                (void) strcpy(text + at + 4003, "\r\n");
                at += 4005;
        }
        ok(parse(head, text, at, at) == 431 && parse(head, text, at, 17) == 431, "a long head: 431");
        at = strlen(GET);
        (void) strcpy(text, GET);
        for (int i = 1; i < HTTP_HEADERS_MAX; i++)
                at += (size_t) sprintf(text + at, "A: b\r\n");
        size_t full = at + (size_t) sprintf(text + at, "\r\n");
        ok(parse(head, text, full, full) == 0, "100 headers are taken");
        full = at + (size_t) sprintf(text + at, "A: b\r\n\r\n");
        ok(parse(head, text, full, full) == 431, "101 headers: 431");
        http_head_reset(head);
        ok(head->room <= HTTP_HEAD_KEPT, "a large room is given back");
}

/* ---- bodies ---- */

/* The data, NUL-terminated; *ret_status 400 when refused, 0 when whole, -1 when more is needed. */
static size_t decode(int64_t length, const char *bytes, size_t piece, char *data, int *ret_status) {
        struct http_body body;
        struct http_refusal refusal = { 0 };
        size_t used = 0, at = 0, size = strlen(bytes);
        http_body_begin(&body, length);
        while (at < size && !body.is_done && !refusal.status) {
                const char *part;
                size_t n = size - at < piece ? size - at : piece, part_size;
                at += http_body_take(&body, bytes + at, n, &part, &part_size, &refusal);
                memcpy(data + used, part, part_size);
                used += part_size;
        }
        data[used] = '\0';
        *ret_status = refusal.status ? refusal.status : body.is_done ? 0 : -1;
        return at;
}

static void test_bodies(void) {
        static const struct {
                const char *what, *bytes;
                int status;
                const char *data;
        } chunked[] = {
                { "chunks", "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nnext", 0, "hello!" },
                { "upper-case and leading zeros", "0A\r\n0123456789\r\n000\r\n\r\n", 0, "0123456789" },
                { "no end yet", "5\r\nhello\r\n0\r\n", -1, "hello" },
                { "an overflow", "fffffffffffffffff\r\n", 400, "" },
                { "a sign", "-5\r\nhello\r\n", 400, "" },
                { "a prefix", "0x5\r\nhello\r\n", 400, "" },
                { "junk after the size", "5 junk\r\nhello\r\n", 400, "" },
                { "an extension", "5;a=b\r\nhello\r\n", 400, "" },
                { "an empty size", "\r\nhello\r\n", 400, "" },
                { "a bare LF after the size", "5\nhello\r\n", 400, "" },
                { "no line break after the data", "5\r\nhelloX0\r\n\r\n", 400, "hello" },
                { "a trailer", "0\r\nA: b\r\n\r\n", 400, "" },
        };
        char data[64];
        int status;
        for (size_t i = 0; i < sizeof(chunked) / sizeof(chunked[0]); i++) {
                bool is_good = true;
                for (size_t piece = 1; piece < 40; piece++) {
                        (void) decode(-1, chunked[i].bytes, piece, data, &status);
                        is_good = is_good && status == chunked[i].status && strcmp(data, chunked[i].data) == 0;
                }
                ok(is_good, "chunked body with %s: %d", chunked[i].what, chunked[i].status);
        }
        ok(decode(-1, chunked[0].bytes, 99, data, &status) == strlen(chunked[0].bytes) - 4,
           "what follows is left alone");
        ok(decode(3, "abcdef", 2, data, &status) == 3 && status == 0 && strcmp(data, "abc") == 0,
           "a body of known length");
}

static void test_hosts(void) {
        static const char *const good[] = { "a", "a.b-c:1", "127.0.0.1:65535", "[::1]", "[::1]:8080", "LOCALHOST" };
        static const char *const bad[] = { "",     ":80",   "a:", "a:65536", "a:b", "a b",
                                           "[::1", "[::g]", "[]", "a@b",     "a,b", "::1" };
        static const char *const local[] = { "localhost", "LocalHost:80", "a.localhost",
                                             "127.0.0.1", "127.9.9.9:1",  "[::1]:80" };
        static const char *const foreign[] = {
                "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "notlocalhost",
                ".localhost"
        };
        bool is_right = true;
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
                is_right = is_right && http_host_is_valid(good[i]);
        ok(is_right, "hosts that are taken");
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                is_right = is_right && !http_host_is_valid(bad[i]);
        ok(is_right, "hosts that are refused");
        for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
                is_right = is_right && http_host_is_loopback(local[i]);
        ok(is_right, "hosts that are this machine");
        for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
                is_right = is_right && !http_host_is_loopback(foreign[i]);
        ok(is_right, "hosts that are not");
}

int main(void) {
        struct http_head head = { 0 };
        test_rows(&head);
        test_values(&head);
        test_bounds(&head);
        http_head_free(&head);
        test_bodies();
        test_hosts();
        return done_testing();
}
