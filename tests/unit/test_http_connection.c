/* A connection without a socket: the calls to the handler, and the bytes sent. */
#include "http/connection.h"
#include "tap.h"

static char told[8192], sent[1 << 16];
static struct http_request *held;
static struct http_connection *connection;
static struct http_counters counters;
static unsigned n_wakes;

static void note(const char *text) {
        (void) snprintf(told + strlen(told), sizeof(told) - strlen(told), "%s", text);
}

static void on_body(void *context, const char *bytes, size_t size) {
        (void) context;
        (void) strncat(told, bytes, size);
}

static void on_body_end(void *context) {
        (void) context;
        note(".");
}

static void on_drained(void *context) {
        (void) context;
        note("drained ");
}

static void on_gone(void *context) {
        (void) context;
        held = NULL;
        note("gone ");
}

static const struct http_events events = { on_body, on_body_end, on_drained, on_gone };
static const struct http_events no_body = { .on_drained = on_drained, .on_gone = on_gone };

static void on_whole(void *context, struct http_request *request, const char *bytes, size_t size) {
        (void) context;
        (void) bytes;
        note(!request ? "none " : size == 256 << 10 ? "large " : "small ");
        if (request)
                (void) http_respond(request, 200, "text/plain", "", 0);
}

/* The path says what the handler does. */
static void handle(void *context, struct http_request *request) {
        (void) context;
        const char *path = http_path(request);
        note(path);
        note(" ");
        held = request;
        if (strcmp(path, "/now") == 0)
                (void) http_respond(request, 200, "text/plain", "now", 3);
        else if (strcmp(path, "/read") == 0)
                http_attend(request, &events, NULL);
        else if (strcmp(path, "/limit") == 0) {
                if (http_limit_body(request, 4))
                        http_attend(request, &events, NULL);
        } else if (strcmp(path, "/whole") == 0)
                (void) http_collect_body(request, 1 << 20, on_whole, NULL);
        else
                http_attend(request, &no_body, NULL);
}

static void wake(struct http_connection *woken) {
        (void) woken;
        n_wakes++;
}

static void begin(void) {
        static const struct http_handler handler = { .handle = handle };
        static struct http_connection storage;
        http_connection_free(&storage);
        storage = (struct http_connection) { .handler = &handler, .counters = &counters, .wake = wake };
        connection = &storage;
        http_connection_begin(connection);
        told[0] = sent[0] = '\0';
        held = NULL;
}

static size_t feed(const char *text) {
        return http_connection_feed(connection, text, strlen(text));
}

/* What is queued, as if it had been sent. */
static const char *take(void) {
        size_t size = http_out_size(&connection->out);
        if (size >= sizeof(sent))
                size = sizeof(sent) - 1;
        if (size > 0)
                memcpy(sent, connection->out.bytes + connection->out.start, size);
        sent[size] = '\0';
        http_out_drop(&connection->out, http_out_size(&connection->out));
        return sent;
}

static bool begins(const char *text, const char *start) {
        return strncmp(text, start, strlen(start)) == 0;
}

static bool ends(const char *text, const char *tail) {
        return strlen(text) >= strlen(tail) && strcmp(text + strlen(text) - strlen(tail), tail) == 0;
}

#define REQUEST(method, path) method " " path " HTTP/1.1\r\nHost: a\r\n"

static void test_exchanges(void) {
        begin();
        ok(feed(REQUEST("GET", "/now") "\r\n" REQUEST("GET", "/now") "\r\n") > 0 && connection->phase == PHASE_IDLE,
           "two requests in one read");
        is_text(told, "/now /now ", "both are handled");
        ok(begins(take(), "HTTP/1.1 200 OK\r\n") && ends(sent, "\r\n\r\nnow"), "and answered");
        ok(!strstr(sent, "Connection:"), "the connection stays");
        begin();
        size_t first = strlen(REQUEST("GET", "/hold") "\r\n");
        ok(feed(REQUEST("GET", "/hold") "\r\n" REQUEST("GET", "/now") "\r\n") == first,
           "while one is under way, the next is not looked at");
        n_wakes = 0;
        ok(http_respond(held, 404, NULL, NULL, 0) == 0 && n_wakes == 1, "an answer from elsewhere asks for a turn");
        ok(feed(REQUEST("GET", "/now") "\r\n") > 0 && strstr(take(), "404") < strstr(sent, "200"),
           "answers keep the order");
        begin();
        (void) feed(REQUEST("HEAD", "/now") "\r\n");
        ok(strstr(take(), "Content-Length: 3\r\n") && ends(sent, "\r\n\r\n"), "HEAD gets the head only");
        begin();
        (void) feed(REQUEST("GET", "/now") "Connection: close\r\n\r\n" REQUEST("GET", "/now"));
        ok(strstr(take(), "Connection: close\r\n") && connection->phase == PHASE_LAST, "close is honoured");
        is_text(told, "/now ", "and nothing is read after it");
}

static void test_bodies(void) {
        begin();
        (void) feed(REQUEST("POST", "/read") "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n");
        is_text(take(), "HTTP/1.1 100 Continue\r\n\r\n", "a client that expects it gets 100 Continue");
        (void) feed("he");
        http_attend(held, &no_body, NULL);
        ok(feed("llo") == 0, "a paused body is not taken");
        http_attend(held, &events, NULL);
        ok(feed("llo") == 3, "and goes on later");
        is_text(told, "/read hello.", "the body came whole");
        ok(http_respond(held, 200, "text/plain", "", 0) == 0 && connection->phase == PHASE_IDLE, "and is answered");
        begin();
        (void) feed(REQUEST("POST", "/read") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        is_text(told, "/read abc.", "a chunked body");
        begin();
        (void) feed(REQUEST("POST", "/read") "\r\n");
        is_text(told, "/read .", "no body ends at once");
        begin();
        (void) feed(REQUEST("POST", "/now") "Content-Length: 5\r\n\r\nhe");
        ok(connection->phase == PHASE_DISCARD && !strstr(take(), "close"),
           "a small body that the handler does not read is dropped");
        (void) feed("llo" REQUEST("GET", "/now") "\r\n");
        is_text(told, "/now /now ", "and the connection goes on");
        begin();
        (void) feed(REQUEST("POST", "/now") "Content-Length: 5000000\r\n\r\nhe");
        ok(connection->phase == PHASE_LAST && connection->must_linger && strstr(take(), "close"),
           "a large one ends it");
        begin();
        (void) feed(REQUEST("POST", "/now") "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n");
        ok(connection->phase == PHASE_LAST && !strstr(take(), "Continue"), "so does one that was not asked for");
}

static void feed_body(size_t size) {
        static char body[256 << 10];
        char head[200];
        begin();
        (void) snprintf(head, sizeof(head), REQUEST("POST", "/whole") "Content-Length: %zu\r\n\r\n", size);
        (void) feed(head);
        memset(body, 'x', size);
        for (size_t at = 0, n; at < size; at += n) {
                n = http_connection_feed(connection, body + at, size - at < 4096 ? size - at : 4096);
                if (n == 0)
                        break;
        }
}

/* However many send large bodies and never end them: all together have a bound, and small ones get through. */
static void test_collected(void) {
        feed_body(256 << 10);
        ok(strstr(told, "large") && counters.collected == 0, "a large body is read whole, and its room given back");
        counters.collected = HTTP_COLLECT_MAX; /* of others */
        feed_body(256 << 10);
        ok(strstr(told, "none") && begins(take(), "HTTP/1.1 503 "), "no large one while others have all the room");
        feed_body(32 << 10);
        ok(strstr(told, "small") && begins(take(), "HTTP/1.1 200 "), "but a small one");
        ok(counters.collected == HTTP_COLLECT_MAX, "and all of it is given back");
        counters.collected = 0;
}

static void test_refusals(void) {
        begin();
        (void) feed("GET / HTTP/1.1\nHost: a\r\n\r\n");
        ok(begins(take(), "HTTP/1.1 400 ") && strstr(sent, "problem+json") && strstr(sent, "Connection: close"),
           "a problem");
        ok(connection->phase == PHASE_LAST && told[0] == '\0', "that the handler never sees");
        begin();
        (void) feed(REQUEST("POST", "/read") "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nX");
        is_text(told, "/read agone ", "a broken body: the handler gets on_gone");
        ok(begins(take(), "HTTP/1.1 400 "), "and the client");
        begin();
        (void) feed(REQUEST("POST", "/read") "Transfer-Encoding: chunked\r\n\r\n");
        (void) http_stream_begin(held, 200, NULL, HTTP_CHUNKED);
        (void) http_stream_write(held, "x", 1);
        (void) feed("X");
        ok(ends(take(), "1\r\nx\r\n") && connection->phase == PHASE_LAST,
           "a stream that was begun stays without its end");
        begin();
        (void) feed(REQUEST("POST", "/limit") "Content-Length: 5\r\n\r\nhello");
        ok(begins(take(), "HTTP/1.1 413 "), "a body that says it is too long");
        is_text(told, "/limit ", "does not flow");
        begin();
        (void) feed(REQUEST("POST", "/limit") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\nabc\r\n");
        ok(begins(take(), "HTTP/1.1 413 "), "a body that is too long");
        is_text(told, "/limit abcgone ", "is cut");
        begin();
        (void) feed(REQUEST("POST", "/read") "Content-Length: 5\r\n\r\nhe");
        http_connection_end_input(connection);
        is_text(told, "/read hegone ", "a client that leaves in its body");
}

static void test_streams(void) {
        static char piece[64 << 10];
        begin();
        (void) feed(REQUEST("GET", "/hold") "\r\n");
        ok(http_stream_write(held, "x", 1) < 0, "no piece before the beginning");
        (void) http_stream_begin(held, 200, "text/plain", HTTP_CHUNKED);
        ok(http_stream_write(held, "hello", 5) == 0 && http_stream_write(held, "", 0) == 0, "pieces are taken");
        http_stream_end(held);
        ok(ends(take(), "\r\n\r\n5\r\nhello\r\n0\r\n\r\n") && connection->phase == PHASE_IDLE, "as chunks");
        begin();
        (void) feed(REQUEST("GET", "/hold") "\r\n");
        (void) http_stream_begin(held, 200, NULL, HTTP_CHUNKED);
        int code = 0, n = 0;
        while (code == 0 && n++ < 100)
                code = http_stream_write(held, piece, sizeof(piece));
        ok(code == 1 && http_out_size(&connection->out) < HTTP_OUT_HIGH + 2 * sizeof(piece),
           "past the mark it says wait");
        http_connection_report_drained(connection);
        is_text(told, "/hold ", "nothing was sent yet: there is no callback");
        (void) take();
        http_connection_report_drained(connection);
        http_connection_report_drained(connection);
        is_text(told, "/hold drained ", "the stream gets one callback");
        while (code >= 0)
                code = http_stream_write(held, piece, sizeof(piece));
        ok(http_out_size(&connection->out) <= HTTP_OUT_MAX, "a stream that does not listen meets the bound");
        http_stream_abort(held);
        ok(connection->phase == PHASE_LAST, "a stream can be cut off");
        begin();
        (void) feed(REQUEST("GET", "/hold") "\r\n");
        (void) http_stream_begin(held, 200, NULL, 5);
        ok(http_stream_write(held, "hello!", 6) < 0 && http_stream_write(held, "hel", 3) == 0,
           "no more than was announced");
        http_stream_end(held);
        ok(connection->phase == PHASE_LAST, "and less ends the connection");
        begin();
        (void) feed("GET /hold HTTP/1.0\r\nHost: a\r\n\r\n");
        (void) http_stream_begin(held, 200, NULL, HTTP_CHUNKED);
        (void) http_stream_write(held, "hello", 5);
        http_stream_end(held);
        ok(ends(take(), "\r\n\r\nhello") && !strstr(sent, "chunked") && connection->phase == PHASE_LAST,
           "HTTP/1.0 gets no chunks");
        begin();
        (void) feed(REQUEST("GET", "/hold") "\r\n");
        http_connection_abandon(connection);
        http_connection_abandon(connection);
        is_text(told, "/hold gone ", "a client that leaves is reported once");
}

static void test_headers(void) {
        begin();
        (void) feed(REQUEST("GET", "/hold") "\r\n");
        ok(http_add_header(held, "A", "b\r\nC: d") < 0 && http_add_header(held, "A b", "c") < 0,
           "no line breaks into the head");
        ok(http_add_header(held, "content-length", "5") < 0, "nor the framing changed");
        ok(http_respond(held, 200, "text/plain\r\nX: y", "", 0) < 0, "nor by the type");
        ok(http_add_header(held, "cache-control", "max-age=1") == 0 && http_add_header(held, "ETag", "\"x\"") == 0,
           "others go");
        (void) http_respond(held, 304, NULL, NULL, 0);
        ok(strstr(take(), "ETag: \"x\"\r\n") && !strstr(sent, "no-store") && strstr(sent, "nosniff"),
           "and replace a default");
        ok(!strstr(sent, "Content-Length"), "304 has no length");
        (void) feed(REQUEST("GET", "/hold") "\r\n");
        http_problem(held, 422, "usage", "a \"quote\", a \\ and a bad byte \xff\n", "mend it");
        ok(strstr(take(),
                  "\"detail\":\"a \\\"quote\\\", a \\\\ and a bad byte \xef\xbf\xbd\\u000a\",\"remedy\":\"mend it\"}"),
           "a problem is well-formed whatever its text");
        ok(!strstr(sent, "ETag"), "and headers of an earlier answer do not come again");
}

int main(void) {
        test_exchanges();
        test_bodies();
        test_collected();
        test_refusals();
        test_streams();
        test_headers();
        http_connection_free(connection);
        return done_testing();
}
