/* A connection's state machine, with handlers that answer at once, later, in pieces or not at all. Whatever comes, and
 * however it is cut into reads: no crash, no illegal move, everything bounded, the same things told to the handlers and
 * the same bytes sent. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/connection.h"
#include "http/media.h"
#include "http/query.h"
#include "http/range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition) {
        if (!condition)
                abort();
}

/* What one way of feeding came to. */
struct world {
        struct http_connection connection;
        struct http_counters counters;
        struct http_out told, sent;
        struct http_request *held; /* waits for `later` */
        bool is_streaming, is_paused, is_over;
        unsigned left;
};

static void tell(struct world *world, const char *bytes, size_t size) {
        must(http_out_add(&world->told, bytes, size, 64 << 20) == 0);
}

static void tell_text(struct world *world, const char *text) {
        tell(world, text, strlen(text) + 1);
}

static void on_body(void *context, const char *bytes, size_t size) {
        must(size > 0);
        tell(context, bytes, size);
}

static void on_body_end(void *context) {
        struct world *world = context;
        must(world->held != NULL);
        tell_text(world, "end");
        struct http_request *request = world->held;
        if (strcmp(http_path(request), "/p") == 0)
                return;
        world->held = NULL;
        must(http_respond(request, 200, "text/plain", "done", 4) == 0);
}

static void on_gone(void *context) {
        struct world *world = context;
        must(world->held != NULL && !world->is_over);
        world->held = NULL;
        tell_text(world, "gone");
}

static const struct http_events reads = { .on_body = on_body, .on_body_end = on_body_end, .on_gone = on_gone };
/* Where a body is cut off depends on the cuts: by how much of it came, nothing is decided or told. */
static void on_ignored(void *context, const char *bytes, size_t size) {
        (void) context;
        (void) bytes;
        must(size > 0);
}

static const struct http_events ignores = { .on_body = on_ignored, .on_body_end = on_body_end, .on_gone = on_gone };
static const struct http_events waits = { .on_gone = on_gone };

/* Everything that a handler may look at. */
static void look(struct world *world, const struct http_request *request) {
        struct http_pairs pairs;
        uint64_t first, length;
        tell_text(world, http_method(request));
        tell_text(world, http_path(request));
        tell_text(world, http_host(request));
        if (http_query_parse(http_query(request), &pairs, NULL) == 0) {
                for (size_t i = 0; i < pairs.n; i++)
                        tell_text(world, pairs.pairs[i].value);
                http_query_free(&pairs);
        }
        for (size_t i = 0; i < request->head.n_headers; i++)
                tell_text(world, request->head.bytes + request->head.headers[i].value);
        (void) http_accept_quality(http_header(request, "Accept"), "text/plain");
        (void) http_type_is(http_header(request, "Content-Type"), "application/json");
        if (http_range_parse(http_header(request, "Range"), 1000, &first, &length) == HTTP_RANGE_PART)
                must(first < 1000 && length > 0 && length <= 1000 - first);
}

static void handle(void *context, struct http_request *request) {
        struct world *world = context;
        must(world->held == NULL);
        look(world, request);
        world->held = request;
        world->is_streaming = world->is_paused = false;
        world->left = 3;
        switch (http_path(request)[1]) {
        case 'r': /* reads all, then answers */
                http_attend(request, &reads, world);
                break;
        case 'p': /* reads with pauses, answers later */
                http_attend(request, &waits, world);
                world->is_paused = true;
                break;
        case 'l': /* reads little */
                if (http_limit_body(request, 10))
                        http_attend(request, &ignores, world);
                else
                        world->held = NULL;
                break;
        case 's': /* streams later */
                http_attend(request, &waits, world);
                must(http_stream_begin(request, 200, "text/plain", HTTP_CHUNKED) == 0);
                world->is_streaming = true;
                break;
        case 'w': /* answers later */
                http_attend(request, &waits, world);
                break;
        default:
                world->held = NULL;
                must(http_add_header(request, "X-Path", http_path(request)) == 0 || strlen(http_path(request)) > 4000);
                must(http_respond(request, 200, "text/plain", "ok", 2) == 0);
        }
}

static void wake(struct http_connection *connection) {
        (void) connection;
}

/* What the loop would do once all input that is wanted has been taken: one step of whatever is under way. */
static bool step_later(struct world *world) {
        struct http_request *request = world->held;
        if (!request)
                return false;
        if (world->is_paused) {
                world->is_paused = false;
                http_attend(request, &reads, world);
                return true;
        }
        if (request->events->on_body && world->connection.phase == PHASE_BODY)
                return false;
        if (world->is_streaming && world->left-- > 0) {
                must(http_stream_write(request, "piece", 5) >= 0);
                return true;
        }
        world->held = NULL;
        if (world->is_streaming)
                http_stream_end(request);
        else
                must(http_respond(request, 404, NULL, NULL, 0) == 0);
        return true;
}

static void send_queued(struct world *world) {
        struct http_out *out = &world->connection.out;
        must(http_out_size(out) <= HTTP_OUT_MAX);
        if (http_out_size(out) > 0)
                must(http_out_add(&world->sent, out->bytes + out->start, http_out_size(out), 256 << 20) == 0);
        http_out_drop(out, http_out_size(out));
}

/* Feeds one piece until it is taken, as link.c does. */
static void feed(struct world *world, const char *bytes, size_t size) {
        size_t at = 0;
        for (;;) {
                at += http_connection_feed(&world->connection, bytes + at, size - at);
                must(at <= size && (at == size || !http_connection_wants_input(&world->connection)));
                send_queued(world);
                if (step_later(world))
                        continue;
                if (at == size || !http_connection_wants_input(&world->connection))
                        return;
        }
}

static void run(struct world *world, const char *bytes, size_t size, uint32_t cuts) {
        struct http_handler handler = { .handle = handle, .context = world };
        world->connection.handler = &handler;
        world->connection.counters = &world->counters;
        world->connection.wake = wake;
        http_connection_begin(&world->connection);
        while (size > 0) {
                size_t n = size;
                if (cuts) {
                        cuts = cuts * 1664525u + 1013904223u;
                        n = cuts >> 30 == 0 ? 1 : 1 + (cuts >> 16) % 40;
                        n = n < size ? n : size;
                }
                feed(world, bytes, n);
                bytes += n;
                size -= n;
        }
        http_connection_end_input(&world->connection);
        feed(world, "", 0);
        http_connection_abandon(&world->connection);
        world->is_over = true;
        must(world->held == NULL);
        http_connection_free(&world->connection);
}

static bool is_same(const struct http_out *a, const struct http_out *b) {
        return http_out_size(a) == http_out_size(b) &&
               (http_out_size(a) == 0 || memcmp(a->bytes + a->start, b->bytes + b->start, http_out_size(a)) == 0);
}

/* The first two bytes say how the second way cuts, the rest is sent. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (size < 2)
                return 0;
        struct world whole = { 0 }, cut = { 0 };
        run(&whole, (const char *) data + 2, size - 2, 0);
        run(&cut, (const char *) data + 2, size - 2, 1u + (uint32_t) data[0] + ((uint32_t) data[1] << 8));
        must(is_same(&whole.told, &cut.told) && is_same(&whole.sent, &cut.sent));
        must(whole.counters.requests == cut.counters.requests && whole.counters.refused == cut.counters.refused);
        http_out_free(&whole.told);
        http_out_free(&whole.sent);
        http_out_free(&cut.told);
        http_out_free(&cut.sent);
        return 0;
}
