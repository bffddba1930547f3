#include "api/exchange.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/stream.h"
#include "base/memory.h"
#include "http/media.h"
#include "session/daemon.h"
#include "session/modest.h"
#include "session/operation.h"

enum { BEAT_MS = 15 * 1000 };

static const struct asker_type asker_type;

/* ---- its life ---- */

struct exchange *exchange_open(struct service *service, struct http_request *request, const struct api_match *match,
                               const struct visitor *visitor) {
        struct exchange *exchange = calloc(1, sizeof(*exchange));
        if (!exchange) {
                http_problem(request, 503, "busy", "the service is out of memory", "try again in a moment");
                return NULL;
        }
        exchange->service = service;
        exchange->request = request;
        exchange->match = *match;
        exchange->visitor = *visitor;
        exchange->asker = (struct asker) { .type = &asker_type,
                                           .daemon = service->daemon,
                                           .owner = exchange->visitor.owner,
                                           .cursor = 1 };
        exchange->next = service->exchanges;
        if (exchange->next)
                exchange->next->previous = exchange;
        service->exchanges = exchange;
        return exchange;
}

static void stop_counting(struct exchange *exchange) {
        if (exchange->is_run && exchange->visitor.use)
                exchange->visitor.use->runs--;
        exchange->is_run = false;
}

static void release_body(struct exchange *exchange) {
        exchange->service->reserved -= exchange->reserved;
        exchange->reserved = 0;
}

/* A body is held until it is whole: as many as there is memory for. */
static bool reserve_body(struct exchange *exchange) {
        struct service *service = exchange->service;
        int64_t length = http_content_length(exchange->request);
        size_t size = length >= 0 && length <= EXCHANGE_JSON_MAX ? (size_t) length : EXCHANGE_JSON_MAX;
        if (service->reserved + size > EXCHANGE_BODIES_MAX)
                return false;
        exchange->reserved = size;
        service->reserved += size;
        return true;
}

void exchange_free(struct exchange *exchange) {
        stop_counting(exchange);
        release_body(exchange);
        if (exchange->previous)
                exchange->previous->next = exchange->next;
        else
                exchange->service->exchanges = exchange->next;
        if (exchange->next)
                exchange->next->previous = exchange->previous;
        free(exchange);
}

const char *exchange_user(const struct exchange *exchange) {
        return api_match_get(&exchange->match, "user_id");
}

/* It waits for its run without a client: nothing is read from the journal for nobody. */
static void go_on_alone(struct exchange *exchange) {
        exchange->request = NULL;
        exchange->asker.stream = true;
        exchange->asker.cursor = UINT64_MAX;
}

static void on_gone(void *context) {
        struct exchange *exchange = context;
        if (exchange->asker.run && !exchange->asker.cancel_on_disconnect) {
                go_on_alone(exchange);
                return;
        }
        asker_leave(&exchange->asker);
        exchange_free(exchange);
}

static void on_drained(void *context) {
        struct exchange *exchange = context;
        asker_feed(&exchange->asker);
}

static const struct http_events waiting_events = { .on_drained = on_drained, .on_gone = on_gone };

/* ---- the question ---- */

static void on_whole(void *context, struct http_request *request, const char *bytes, size_t size) {
        struct exchange *exchange = context;
        struct err err;
        if (!request) { /* it left, or sent too much, and that was answered */
                exchange_free(exchange);
                return;
        }
        json_error_t where = { .text = "it nests too deeply, or holds too many small things" };
        json_t *body = size == 0                 ? json_object()
                       : modest_json(bytes, size) ? json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &where)
                                                  : NULL;
        release_body(exchange);
        if (json_is_object(body))
                exchange->then(exchange, body);
        else {
                (void) err_set(&err, ERR_USAGE, "the body is not a JSON object: %s",
                               body ? "something else" : where.text);
                exchange_refuse(exchange, &err);
        }
        json_decref(body);
}

void exchange_read_json(struct exchange *exchange, void (*then)(struct exchange *exchange, json_t *body)) {
        struct http_request *request = exchange->request;
        const char *type = http_header(request, "Content-Type");
        exchange->then = then;
        if ((type || http_content_length(request) != 0) && !http_type_is(type, "application/json")) {
                exchange_problem(exchange, 415, "wrong_type", "the body must be JSON, and say so",
                                 "send it with \"Content-Type: application/json\"");
                return;
        }
        if (!reserve_body(exchange)) {
                exchange_problem(exchange, 503, "busy", "too many large requests are on their way at once",
                                 "try again in a moment");
                return;
        }
        if (http_collect_body(request, EXCHANGE_JSON_MAX, on_whole, exchange) < 0)
                exchange_free(exchange); /* answered already */
}

void exchange_choose_form(struct exchange *exchange, bool wants_stream) {
        const char *accept = http_header(exchange->request, "Accept");
        int events = accept ? http_accept_quality(accept, "text/event-stream") : 0;
        int lines = accept ? http_accept_quality(accept, "application/x-ndjson") : 0;
        int whole = accept ? http_accept_quality(accept, "application/json") : 1000;
        if (!wants_stream && whole >= events && whole >= lines)
                exchange->form = EXCHANGE_WHOLE;
        else
                exchange->form = lines > events ? EXCHANGE_LINES : EXCHANGE_EVENTS;
        exchange->asker.stream = exchange->form != EXCHANGE_WHOLE;
}

void exchange_ask(struct exchange *exchange, json_t *operation) {
        struct err err;
        http_attend(exchange->request, &waiting_events, exchange);
        if (operation_run(&exchange->asker, operation, &err) < 0)
                asker_refuse(&exchange->asker, &err);
        json_decref(operation);
}

/* ---- the answer ---- */

void exchange_problem(struct exchange *exchange, int status, const char *code, const char *detail, const char *remedy) {
        if (status == 429)
                exchange->service->counted.turned_away++;
        if (exchange->request && exchange->is_begun)
                stream_end_with_problem(exchange, status, code, detail, remedy);
        else if (exchange->request) {
                if (status == 429 || status == 503)
                        (void) http_add_header(exchange->request, "Retry-After", "1");
                http_problem(exchange->request, status, code, detail, remedy);
        }
        exchange_free(exchange);
}

void exchange_refuse(struct exchange *exchange, const struct err *err) {
        exchange_problem(exchange, err_code_http_status(err->code), err_code_name(err->code), err->message, NULL);
}

void exchange_answer_bytes(struct exchange *exchange, int status, const char *type, const void *bytes, size_t size) {
        int code = http_respond(exchange->request, status, type, bytes, size);
        if (code == -EFBIG && http_stream_begin(exchange->request, status, type, (int64_t) size) == 0) {
                (void) http_stream_write(exchange->request, bytes, size);
                http_stream_end(exchange->request); /* or, if it was not taken, the client sees that it is not whole */
        } else if (code < 0)
                http_problem(exchange->request, 500, "system", "the answer cannot be written", NULL);
        exchange_free(exchange);
}

static void answer_text(struct exchange *exchange, int status, const char *text, size_t size) {
        if (size > EXCHANGE_ANSWER_MAX)
                exchange_problem(exchange, 500, "result_too_large", "the result is larger than 12 MiB",
                                 "save it to a file and fetch that");
        else
                exchange_answer_bytes(exchange, status, "application/json", text, size);
}

void exchange_answer(struct exchange *exchange, int status, json_t *answer) {
        _cleanup_free_ char *text = exchange->request ? json_dumps(answer, JSON_COMPACT) : NULL;
        json_decref(answer);
        if (text)
                answer_text(exchange, status, text, strlen(text));
        else
                exchange_problem(exchange, 503, "busy", "the service is out of memory", NULL);
}

/* ---- what the session layer says ---- */

static void on_answer(struct asker *asker, const char *text, size_t size, json_t *json) {
        struct exchange *exchange = (struct exchange *) asker;
        int status = 200;
        if (!exchange->request)
                exchange_free(exchange);
        else if (exchange->is_begun && size <= EXCHANGE_ANSWER_MAX) {
                stream_end(exchange, text, size);
                exchange_free(exchange);
        } else if (exchange->shape && json) {
                json_t *shaped = exchange->shape(exchange, json, &status);
                exchange_answer(exchange, status, shaped);
        } else
                answer_text(exchange, status, text, size);
}

static void on_refuse(struct asker *asker, const struct err *err) {
        exchange_refuse((struct exchange *) asker, err);
}

static void on_accepted(struct asker *asker, const char *run_id) {
        struct exchange *exchange = (struct exchange *) asker;
        if (!exchange->request)
                return;
        if (exchange->is_detached) {
                char text[96];
                int size = snprintf(text, sizeof(text), "{\"run_id\":\"%s\"}", run_id);
                (void) http_respond(exchange->request, 202, "application/json", text, (size_t) size);
                go_on_alone(exchange);
        } else if (exchange->form != EXCHANGE_WHOLE)
                stream_begin(exchange, run_id);
}

static void on_output(struct asker *asker, const struct asker_output *output) {
        struct exchange *exchange = (struct exchange *) asker;
        if (exchange->request)
                stream_put_output(exchange, output);
}

static void on_display(struct asker *asker, json_t *data) {
        struct exchange *exchange = (struct exchange *) asker;
        if (exchange->request)
                stream_put_display(exchange, data);
}

static bool wants_more(const struct asker *asker) {
        const struct exchange *exchange = (const struct exchange *) asker;
        return exchange->request && http_stream_wants_more(exchange->request);
}

static const struct asker_type asker_type = { .answer = on_answer,
                                              .refuse = on_refuse,
                                              .accepted = on_accepted,
                                              .output = on_output,
                                              .display = on_display,
                                              .wants_more = wants_more,
                                              .text_only = true };

void exchange_beat_all(struct service *service) {
        uint64_t now_ms = loop_now_ms();
        for (struct exchange *exchange = service->exchanges; exchange; exchange = exchange->next)
                if (exchange->request && exchange->is_begun && now_ms - exchange->heard_ms >= BEAT_MS)
                        stream_beat(exchange);
}
