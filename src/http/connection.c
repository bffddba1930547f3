#include "http/connection.h"

#include <stdlib.h>
#include <string.h>

static const bool moves[PHASES][PHASES] = {
        [PHASE_IDLE] = { [PHASE_HEAD] = true, [PHASE_LAST] = true, [PHASE_GONE] = true },
        [PHASE_HEAD] = { [PHASE_BODY] = true, [PHASE_ANSWER] = true, [PHASE_LAST] = true, [PHASE_GONE] = true },
        [PHASE_BODY] = { [PHASE_ANSWER] = true, [PHASE_DISCARD] = true, [PHASE_LAST] = true, [PHASE_GONE] = true },
        [PHASE_ANSWER] = { [PHASE_IDLE] = true, [PHASE_LAST] = true, [PHASE_GONE] = true },
        [PHASE_DISCARD] = { [PHASE_IDLE] = true, [PHASE_LAST] = true, [PHASE_GONE] = true },
        [PHASE_LAST] = { [PHASE_GONE] = true },
};

static void set_phase(struct http_connection *connection, enum http_phase phase) {
        if (!moves[connection->phase][phase])
                abort(); /* a bug; continuing could mix the bytes of two requests */
        connection->phase = phase;
}

void http_connection_begin(struct http_connection *connection) {
        connection->keeps = true;
}

void http_connection_free(struct http_connection *connection) {
        http_head_free(&connection->request.head);
        http_out_free(&connection->request.fields);
        http_out_free(&connection->out);
}

void http_connection_wake(struct http_connection *connection) {
        if (!connection->is_busy)
                connection->wake(connection);
}

/* ---- the end of a request ---- */

/* After this the handler's pointer is dead, and no callback is called. */
static void connection_forget_request(struct http_connection *connection) {
        struct http_request *request = &connection->request;
        connection->answer = ANSWER_NONE;
        request->events = NULL;
        request->context = NULL;
        request->wants_drained = false;
        http_out_drop(&request->fields, http_out_size(&request->fields));
}

/* Takes the request from the handler, and calls on_gone. */
static void report_gone(struct http_connection *connection) {
        const struct http_events *events = connection->request.events;
        void *context = connection->request.context;
        connection_forget_request(connection);
        if (events && events->on_gone)
                events->on_gone(context);
}

static bool can_discard(const struct http_connection *connection) {
        const struct http_request *request = &connection->request;
        /* A client that got no "100 Continue" may send the body or the next request: which one is unknown. */
        bool waits = request->head.expects_continue && !request->sent_continue;
        return !request->body.is_chunked && request->body.left <= HTTP_DISCARD_MAX && !waits;
}

bool http_connection_can_keep(const struct http_connection *connection) {
        return connection->keeps && (connection->phase == PHASE_ANSWER || can_discard(connection));
}

void http_connection_answered(struct http_connection *connection, bool is_whole) {
        bool goes_on = is_whole && http_connection_can_keep(connection);
        connection->must_linger = connection->phase == PHASE_BODY;
        connection_forget_request(connection);
        if (!goes_on)
                set_phase(connection, PHASE_LAST);
        else
                set_phase(connection, connection->phase == PHASE_BODY ? PHASE_DISCARD : PHASE_IDLE);
        http_connection_wake(connection);
}

void http_connection_abandon(struct http_connection *connection) {
        if (connection->phase == PHASE_GONE)
                return;
        set_phase(connection, PHASE_GONE);
        if (connection->answer != ANSWER_NONE)
                report_gone(connection);
}

void http_connection_refuse(struct http_connection *connection, int status, const char *why) {
        bool can_answer = connection->answer <= ANSWER_OWED && connection->phase < PHASE_DISCARD;
        connection->counters->refused++;
        connection->keeps = false;
        if (connection->answer != ANSWER_NONE)
                report_gone(connection);
        if (can_answer)
                http_problem_queue(connection, status, "protocol", why, NULL);
        /* A stream that has begun cannot be completed: the client notices its missing end. */
        if (connection->phase != PHASE_LAST && connection->phase != PHASE_GONE)
                set_phase(connection, PHASE_LAST);
        connection->must_linger = true;
}

/* ---- bytes in ---- */

bool http_connection_wants_input(const struct http_connection *connection) {
        const struct http_request *request = &connection->request;
        switch (connection->phase) {
        case PHASE_IDLE:
        case PHASE_HEAD: /* a client that sends requests and reads no answers has to wait */
                return !connection->input_ended && http_out_size(&connection->out) < HTTP_OUT_HIGH;
        case PHASE_BODY:
                return request->events && request->events->on_body;
        case PHASE_DISCARD:
        case PHASE_LAST:
                return !connection->input_ended;
        default:
                return false;
        }
}

static void begin_request(struct http_connection *connection) {
        struct http_request *request = &connection->request;
        http_head_reset(&request->head);
        request->body_max = UINT64_MAX;
        request->reported_end = request->sent_continue = request->is_bodiless = false;
        request->replaced = 0;
        connection->n_requests++;
        set_phase(connection, PHASE_HEAD);
}

static size_t take_head(struct http_connection *connection, const char *bytes, size_t size) {
        struct http_request *request = &connection->request;
        if (connection->phase == PHASE_IDLE)
                begin_request(connection);
        bool is_done;
        struct http_refusal refusal;
        size_t taken = http_head_take(&request->head, bytes, size, &is_done, &refusal);
        if (refusal.status) {
                http_connection_refuse(connection, refusal.status, refusal.why);
                return taken;
        }
        if (!is_done)
                return taken;
        if (request->head.wants_close)
                connection->keeps = false;
        connection->counters->requests++;
        http_body_begin(&request->body, request->head.length);
        set_phase(connection, request->body.is_done ? PHASE_ANSWER : PHASE_BODY);
        connection->answer = ANSWER_OWED;
        connection->handler->handle(connection->handler->context, request);
        return taken;
}

static size_t take_body(struct http_connection *connection, const char *bytes, size_t size) {
        struct http_request *request = &connection->request;
        const char *data;
        size_t n;
        struct http_refusal refusal;
        size_t taken = http_body_take(&request->body, bytes, size, &data, &n, &refusal);
        if (!refusal.status && request->body.received > request->body_max && connection->phase == PHASE_BODY)
                refusal = (struct http_refusal) { 413, "the body is longer than this request allows" };
        if (refusal.status) {
                http_connection_refuse(connection, refusal.status, refusal.why);
                return taken;
        }
        if (connection->phase == PHASE_DISCARD) {
                if (request->body.is_done)
                        set_phase(connection, connection->keeps ? PHASE_IDLE : PHASE_LAST);
                return taken;
        }
        if (request->body.is_done)
                set_phase(connection, PHASE_ANSWER);
        if (n > 0)
                request->events->on_body(request->context, data, n);
        return taken;
}

/* The handler gets the end of the body once its callbacks ask for it. */
static void report_body_end(struct http_connection *connection) {
        struct http_request *request = &connection->request;
        if (connection->phase != PHASE_ANSWER || request->reported_end || !request->events ||
            !request->events->on_body_end)
                return;
        request->reported_end = true;
        request->events->on_body_end(request->context);
}

size_t http_connection_feed(struct http_connection *connection, const char *bytes, size_t size) {
        size_t at = 0;
        connection->is_busy = true;
        report_body_end(connection);
        while (at < size && http_connection_wants_input(connection)) {
                if (connection->phase <= PHASE_HEAD)
                        at += take_head(connection, bytes + at, size - at);
                else if (connection->phase == PHASE_LAST)
                        at = size;
                else
                        at += take_body(connection, bytes + at, size - at);
                report_body_end(connection);
        }
        connection->is_busy = false;
        return at;
}

void http_connection_end_input(struct http_connection *connection) {
        connection->input_ended = true;
        connection->is_busy = true;
        if (connection->phase == PHASE_BODY)
                http_connection_abandon(connection);
        else if (connection->phase != PHASE_ANSWER && connection->phase < PHASE_LAST)
                set_phase(connection, PHASE_LAST);
        connection->is_busy = false;
}

void http_connection_report_drained(struct http_connection *connection) {
        struct http_request *request = &connection->request;
        if (!request->wants_drained || http_out_size(&connection->out) > HTTP_OUT_LOW ||
            connection->answer <= ANSWER_OWED)
                return;
        request->wants_drained = false;
        if (!request->events || !request->events->on_drained)
                return;
        connection->is_busy = true;
        request->events->on_drained(request->context);
        connection->is_busy = false;
}
