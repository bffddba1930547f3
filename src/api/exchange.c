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
#include "session/session.h"

enum {
        BEAT_MS = 15 * 1000,
        ANSWER_SMALL = 256 << 10,
        ANSWERS_MAX = 32 << 20, /* of all that clients have not taken yet */
};

static const struct asker_type asker_type;

#define one_of(use) ((const struct share_claim) { .key = (use)->owner, .amount = 1 })

/* ---- its life ---- */

struct exchange *exchange_open(struct service *service, struct http_request *request, const struct api_match *match,
                               const struct visitor *visitor) {
        struct quota_use *use = visitor->use;
        struct err err;
        if (use && share_take(&service->daemon->shares, SHARE_REQUESTS, &one_of(use), &err) < 0) {
                service->counted.turned_away++;
                (void) http_add_header(request, "Retry-After", "1");
                http_problem(request, 429, "limit", err.message, NULL);
                return NULL;
        }
        struct exchange *exchange = calloc(1, sizeof(*exchange));
        if (!exchange) {
                if (use)
                        share_give(&service->daemon->shares, SHARE_REQUESTS, &one_of(use));
                http_problem(request, 503, "busy", "the service is out of memory", "try again in a moment");
                return NULL;
        }
        exchange->service = service;
        exchange->request = request;
        exchange->match = *match;
        exchange->opened_ms = loop_now_ms();
        exchange->visitor = *visitor;
        exchange->is_waiting = use != NULL;
        exchange->asker = (struct asker) { .type = &asker_type,
                                           .daemon = service->daemon,
                                           .owner = exchange->visitor.owner,
                                           .from = http_peer(request)->address,
                                           .cursor = 1 };
        exchange->next = service->exchanges;
        if (exchange->next)
                exchange->next->previous = exchange;
        service->exchanges = exchange;
        return exchange;
}

static void stop_counting(struct exchange *exchange) {
        if (exchange->is_run && exchange->visitor.use)
                share_give(&exchange->service->daemon->shares, SHARE_RUNS, &one_of(exchange->visitor.use));
        exchange->is_run = false;
}

/* Nobody waits for its answer any more. */
static void stop_waiting(struct exchange *exchange) {
        if (exchange->is_waiting)
                share_give(&exchange->service->daemon->shares, SHARE_REQUESTS, &one_of(exchange->visitor.use));
        exchange->is_waiting = false;
}

void exchange_free(struct exchange *exchange) {
        stop_counting(exchange);
        stop_waiting(exchange);
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
        exchange->asker.from = NULL;
        stop_waiting(exchange);
        exchange->asker.stream = true;
        exchange->asker.cursor = UINT64_MAX;
}

static void on_gone(void *context) {
        struct exchange *exchange = context;
        struct asker *asker = &exchange->asker;
        struct run *run = asker_run(asker);
        /* Whoever only read along leaves nothing behind, however often it comes. */
        bool is_under_way = exchange->is_run && (asker->stand_in || run);
        if (!is_under_way || (asker->cancel_on_disconnect && !run)) {
                asker_leave(asker);
                exchange_free(exchange);
                return;
        }
        go_on_alone(exchange);
        if (asker->cancel_on_disconnect) /* it counts until it has ended, which may take a while, or be now */
                session_cancel(run->session, run);
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

void exchange_attend(struct exchange *exchange) {
        http_attend(exchange->request, &waiting_events, exchange);
}

void exchange_ask(struct exchange *exchange, json_t *operation) {
        struct err err;
        exchange->is_asked = true;
        exchange_attend(exchange);
        if (operation_run(&exchange->asker, operation, &err) < 0)
                asker_refuse(&exchange->asker, &err);
        json_decref(operation);
}

/* ---- the answer ---- */

/* Files are changed without the session layer: then it is for us to say so. */
static void record(const struct exchange *exchange, int status) {
        const struct api_route *route = exchange->match.route;
        if (exchange->is_asked || !exchange->request || strcmp(route->method, "GET") == 0)
                return;
        char text[16];
        (void) snprintf(text, sizeof(text), "http %d", status);
        const struct audit_entry entry = { .key = exchange->visitor.owner, .via = "http",
                                           .from = http_peer(exchange->request)->address, .what = route->name,
                                           .session = exchange_user(exchange), .status = status < 300 ? "ok" : text,
                                           .duration_ms = loop_now_ms() - exchange->opened_ms };
        audit_write(&exchange->service->daemon->audit, &entry);
}

void exchange_problem(struct exchange *exchange, int status, const char *code, const char *detail, const char *remedy) {
        record(exchange, status);
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
        record(exchange, status);
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

/* Nobody can have the service hold a large answer for every connection there is. */
static bool is_crowded(const struct exchange *exchange, size_t size) {
        return size > ANSWER_SMALL && http_server_queued(exchange->service->server) + size > ANSWERS_MAX;
}

static void on_answer(struct asker *asker, const char *text, size_t size, json_t *json) {
        struct exchange *exchange = (struct exchange *) asker;
        int status = 200;
        if (!exchange->request)
                exchange_free(exchange);
        else if (is_crowded(exchange, size))
                exchange_problem(exchange, 503, "busy", "the service holds as many large answers as it can for clients "
                                 "that read slowly", "read them, or try again in a moment");
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

static void on_display(struct asker *asker, const char *data, size_t size) {
        struct exchange *exchange = (struct exchange *) asker;
        if (exchange->request)
                stream_put_display(exchange, data, size);
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
                                              .via = "http" };

void exchange_beat_all(struct service *service) {
        uint64_t now_ms = loop_now_ms();
        for (struct exchange *exchange = service->exchanges; exchange; exchange = exchange->next)
                if (exchange->request && exchange->is_begun && now_ms - exchange->heard_ms >= BEAT_MS)
                        stream_beat(exchange);
}
