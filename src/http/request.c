/* The functions of http.h that read a request. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/connection.h"

void http_set_holder(struct http_request *request, const char *holder) {
        struct http_connection *connection = (struct http_connection *) request;
        (void) snprintf(connection->holder, sizeof(connection->holder), "%s", holder);
}

const char *http_method(const struct http_request *request) {
        return request->head.bytes;
}

const char *http_path(const struct http_request *request) {
        return request->head.bytes + request->head.path;
}

const char *http_query(const struct http_request *request) {
        return request->head.query ? request->head.bytes + request->head.query : NULL;
}

const char *http_host(const struct http_request *request) {
        return request->head.bytes + request->head.host;
}

const struct http_peer *http_peer(const struct http_request *request) {
        return &http_connection_of(request)->peer;
}

const char *http_header(const struct http_request *request, const char *name) {
        return http_head_find(&request->head, name);
}

int64_t http_content_length(const struct http_request *request) {
        return request->head.length;
}

/* ---- the body ---- */

static void send_continue(struct http_request *request) {
        struct http_connection *connection = http_connection_of(request);
        bool is_due = request->head.expects_continue && !request->sent_continue && !request->head.is_old &&
                      connection->phase == PHASE_BODY && connection->answer == ANSWER_OWED;
        if (!is_due)
                return;
        request->sent_continue = true;
        if (http_out_add_text(&connection->out, "HTTP/1.1 100 Continue\r\n\r\n", HTTP_OUT_MAX) < 0)
                connection->keeps = false; /* the client will send its body after a while anyway */
}

void http_attend(struct http_request *request, const struct http_events *events, void *context) {
        request->events = events;
        request->context = context;
        if (events && events->on_body)
                send_continue(request);
        http_connection_wake(http_connection_of(request));
}

bool http_limit_body(struct http_request *request, uint64_t max) {
        request->body_max = max;
        if (request->head.length >= 0 && (uint64_t) request->head.length > max) {
                http_problem(request, 413, "too_large", "the body is longer than this request allows",
                             "send less, or in several requests");
                return false;
        }
        return true;
}

/* ---- the whole body at once ---- */

struct collector {
        struct http_request *request;
        struct http_counters *counters;
        char *bytes;
        size_t used, room;
        void (*on_whole)(void *context, struct http_request *request, const char *bytes, size_t size);
        void *context;
};

static void collector_free(struct collector *collector) {
        collector->counters->collected -= collector->room;
        free(collector->bytes);
        free(collector);
}

static void collector_gone(void *context) {
        struct collector *collector = context;
        collector->on_whole(collector->context, NULL, NULL, 0);
        collector_free(collector);
}

static int collector_grow(struct collector *collector, size_t room) {
        uint64_t others = collector->counters->collected - collector->room;
        if (room > HTTP_COLLECT_SMALL && others + room > HTTP_COLLECT_MAX)
                return -ENOBUFS;
        char *grown = realloc(collector->bytes, room);
        if (!grown)
                return -ENOMEM;
        collector->counters->collected = others + room;
        collector->bytes = grown;
        collector->room = room;
        return 0;
}

static void collector_add(void *context, const char *bytes, size_t size) {
        struct collector *collector = context;
        if (collector->room - collector->used <= size) { /* one more, for the NUL */
                int code = collector_grow(collector, (collector->used + size) * 2);
                if (code < 0) {
                        (void) http_add_header(collector->request, "Retry-After", "1");
                        http_problem(collector->request, 503, code == -ENOBUFS ? "busy" : "system",
                                     code == -ENOBUFS ? "too many large requests are being read" : "out of memory",
                                     "try again later");
                        collector_gone(collector);
                        return;
                }
        }
        memcpy(collector->bytes + collector->used, bytes, size);
        collector->used += size;
}

static void collector_end(void *context) {
        struct collector *collector = context;
        http_attend(collector->request, NULL, NULL);
        if (collector->used > 0)
                collector->bytes[collector->used] = '\0';
        collector->on_whole(collector->context, collector->request, collector->used > 0 ? collector->bytes : "",
                            collector->used);
        collector_free(collector);
}

int http_collect_body(struct http_request *request, size_t max,
                      void (*on_whole)(void *context, struct http_request *request, const char *bytes, size_t size),
                      void *context) {
        static const struct http_events events = { .on_body = collector_add,
                                                   .on_body_end = collector_end,
                                                   .on_gone = collector_gone };
        if (!http_limit_body(request, max))
                return -1;
        struct collector *collector = malloc(sizeof(*collector));
        if (!collector) {
                http_problem(request, 503, "system", "out of memory", "try again later");
                return -1;
        }
        *collector = (struct collector) { .request = request,
                                          .counters = http_connection_of(request)->counters,
                                          .on_whole = on_whole,
                                          .context = context };
        http_attend(request, &events, collector);
        return 0;
}
