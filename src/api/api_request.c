#include "api/api_request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/stream.h"
#include "base/json_bounds.h"
#include "base/memory.h"
#include "daemon/daemon.h"
#include "http/media.h"
#include "session/session.h"

enum {
        BEAT_MS = 15 * 1000,
        ANSWER_SMALL = 8 << 10, /* small: there may be one for each connection */
};

static const struct caller_type caller_type;

#define one_of(use) ((const struct share_claim) { .key = (use)->owner, .amount = 1 })

/* ---- creation and end ---- */

struct api_request *api_request_open(struct service *service, struct http_request *request,
                                     const struct api_match *match, const struct visitor *visitor) {
        struct quota_use *use = visitor->use;
        struct err err;
        if (use && share_take(&service->manager->shares, SHARE_REQUESTS, &one_of(use), &err) < 0) {
                service->counted.turned_away++;
                (void) http_add_header(request, "Retry-After", "1");
                http_problem(request, 429, "limit", err.message, NULL);
                return NULL;
        }
        struct api_request *api_request = calloc(1, sizeof(*api_request));
        if (!api_request) {
                if (use)
                        share_give(&service->manager->shares, SHARE_REQUESTS, &one_of(use));
                http_problem(request, 503, "busy", "the service is out of memory", "try again in a moment");
                return NULL;
        }
        api_request->service = service;
        api_request->request = request;
        api_request->match = *match;
        api_request->visitor = *visitor;
        api_request->is_waiting = use != NULL;
        http_set_holder(request, visitor->owner);
        api_request->caller = (struct caller) { .type = &caller_type,
                                                .manager = service->manager,
                                                .owner = api_request->visitor.owner,
                                                .from = http_peer(request)->address,
                                                .cursor = 1 };
        api_request->next = service->api_requests;
        if (api_request->next)
                api_request->next->previous = api_request;
        service->api_requests = api_request;
        return api_request;
}

static void stop_counting(struct api_request *api_request) {
        if (api_request->is_run && api_request->visitor.use)
                share_give(&api_request->service->manager->shares, SHARE_RUNS, &one_of(api_request->visitor.use));
        api_request->is_run = false;
}

/* Its client is gone. */
static void stop_waiting(struct api_request *api_request) {
        if (api_request->is_waiting)
                share_give(&api_request->service->manager->shares, SHARE_REQUESTS, &one_of(api_request->visitor.use));
        api_request->is_waiting = false;
}

void api_request_free(struct api_request *api_request) {
        stop_counting(api_request);
        stop_waiting(api_request);
        if (api_request->previous)
                api_request->previous->next = api_request->next;
        else
                api_request->service->api_requests = api_request->next;
        if (api_request->next)
                api_request->next->previous = api_request->previous;
        free(api_request);
}

const char *api_request_user(const struct api_request *api_request) {
        return api_match_get(&api_request->match, "user_id");
}

/* It waits for its run without a client, and reads nothing from the journal. */
void api_request_go_on_alone(struct api_request *api_request) {
        api_request->request = NULL;
        api_request->caller.from = NULL;
        stop_waiting(api_request);
        api_request->caller.stream = true;
        api_request->caller.cursor = UINT64_MAX;
}

static void api_request_on_gone(void *context) {
        struct api_request *api_request = context;
        struct caller *caller = &api_request->caller;
        struct run *run = caller_run(caller);
        /* A client that only follows a run starts none. */
        bool is_under_way = api_request->is_run && (caller->stand_in || run);
        if (!is_under_way || (caller->cancel_on_disconnect && !run)) {
                caller_leave(caller);
                api_request_free(api_request);
                return;
        }
        api_request_go_on_alone(api_request);
        if (caller->cancel_on_disconnect) /* it counts until it has ended, which may be later, or now */
                session_cancel(run->session, run);
}

static void api_request_on_drained(void *context) {
        struct api_request *api_request = context;
        caller_feed(&api_request->caller);
}

static const struct http_events waiting_events = { .on_drained = api_request_on_drained,
                                                   .on_gone = api_request_on_gone };

int api_request_count_run(struct api_request *api_request, struct err *err) {
        struct quota_use *use = api_request->visitor.use;
        if (use &&
            share_take(&api_request->service->manager->shares, SHARE_RUNS,
                       &(const struct share_claim) { .key = use->owner, .amount = 1, .key_max = use->quota.runs },
                       err) < 0)
                return -1;
        api_request->is_run = true;
        api_request->service->counted.runs++;
        return 0;
}

/* ---- the question ---- */

static void on_whole(void *context, struct http_request *request, const char *bytes, size_t size) {
        struct api_request *api_request = context;
        struct err err;
        if (!request) { /* it disconnected, or sent too much, and was answered */
                api_request_free(api_request);
                return;
        }
        json_error_t where = { .text = "it nests too deeply, or holds too many small things" };
        json_t *body = size == 0                      ? json_object()
                       : json_is_bounded(bytes, size) ? json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &where)
                                                      : NULL;
        if (json_is_object(body))
                api_request->then(api_request, body);
        else {
                (void) err_set(&err, ERR_USAGE, "the body is not a JSON object: %s",
                               body ? "something else" : where.text);
                api_request_refuse(api_request, &err);
        }
        json_decref(body);
}

void api_request_read_json(struct api_request *api_request,
                           void (*then)(struct api_request *api_request, json_t *body)) {
        struct http_request *request = api_request->request;
        const char *type = http_header(request, "Content-Type");
        api_request->then = then;
        if ((type || http_content_length(request) != 0) && !http_type_is(type, "application/json")) {
                api_request_problem(api_request, 415, "wrong_type", "the body must be JSON, with its content type",
                                    "send it with \"Content-Type: application/json\"");
                return;
        }
        if (http_collect_body(request, API_REQUEST_JSON_MAX, on_whole, api_request) < 0)
                api_request_free(api_request); /* answered already */
}

void api_request_choose_form(struct api_request *api_request, bool wants_stream) {
        const char *accept = http_header(api_request->request, "Accept");
        int events = accept ? http_accept_quality(accept, "text/event-stream") : 0;
        int lines = accept ? http_accept_quality(accept, "application/x-ndjson") : 0;
        int whole = accept ? http_accept_quality(accept, "application/json") : 1000;
        if (!wants_stream && whole >= events && whole >= lines)
                api_request->form = API_REQUEST_WHOLE;
        else
                api_request->form = lines > events ? API_REQUEST_LINES : API_REQUEST_EVENTS;
        api_request->caller.stream = api_request->form != API_REQUEST_WHOLE;
}

void api_request_attend(struct api_request *api_request) {
        http_attend(api_request->request, &waiting_events, api_request);
}

void api_request_settle(struct api_request *api_request, int code, const struct err *err) {
        if (code < 0)
                caller_refuse(&api_request->caller, err);
}

/* ---- the answer ---- */

void api_request_problem(struct api_request *api_request, int status, const char *code, const char *detail,
                         const char *remedy) {
        caller_done(&api_request->caller, code);
        if (status == 429)
                api_request->service->counted.turned_away++;
        if (api_request->request && api_request->is_begun)
                stream_end_with_problem(api_request, status, code, detail, remedy);
        else if (api_request->request) {
                if (status == 429 || status == 503)
                        (void) http_add_header(api_request->request, "Retry-After", "1");
                http_problem(api_request->request, status, code, detail, remedy);
        }
        api_request_free(api_request);
}

void api_request_refuse(struct api_request *api_request, const struct err *err) {
        api_request_problem(api_request, err_code_http_status(err->code), err_code_name(err->code), err->message, NULL);
}

void api_request_answer_bytes(struct api_request *api_request, int status, const char *type, const void *bytes,
                              size_t size) {
        caller_done(&api_request->caller, "ok");
        int code = http_respond(api_request->request, status, type, bytes, size);
        if (code == -EFBIG && http_stream_begin(api_request->request, status, type, (int64_t) size) == 0) {
                (void) http_stream_write(api_request->request, bytes, size);
                http_stream_end(
                        api_request->request); /* or, if it was not taken, the client sees that it is not whole */
        } else if (code < 0)
                http_problem(api_request->request, 500, "system", "the answer cannot be written", NULL);
        api_request_free(api_request);
}

static void answer_text(struct api_request *api_request, int status, const char *text, size_t size) {
        if (size > API_REQUEST_ANSWER_MAX)
                api_request_problem(api_request, 500, "result_too_large", "the result is larger than 12 MiB",
                                    "save it to a file and fetch that");
        else
                api_request_answer_bytes(api_request, status, "application/json", text, size);
}

void api_request_answer(struct api_request *api_request, int status, json_t *answer) {
        _cleanup_free_ char *text = api_request->request ? json_dumps(answer, JSON_COMPACT) : NULL;
        json_decref(answer);
        if (text)
                answer_text(api_request, status, text, strlen(text));
        else
                api_request_problem(api_request, 503, "busy", "the service is out of memory", NULL);
}

/* ---- what the operations say ---- */

/* Large answers are bounded together, and those of each key, too: no client can take the memory of the others. */
static bool is_crowded(const struct api_request *api_request, size_t size, struct err *err) {
        const struct http_server *server = api_request->service->server;
        const char *key = api_request->visitor.owner;
        const struct share_claim claim = { .key = key, .amount = size };
        return size > ANSWER_SMALL &&
               share_judge(&api_request->caller.manager->shares, SHARE_ANSWERS, &claim, http_server_queued(server, key),
                           http_server_queued(server, NULL), err) < 0;
}

bool api_request_has_room(void *context, const struct http_request *request, size_t bytes) {
        const struct service *service = context;
        const char *key = http_holder(request);
        const struct share_claim claim = { .key = key, .amount = bytes };
        return share_judge(&service->manager->shares, SHARE_BODIES, &claim, http_server_collected(service->server, key),
                           http_server_collected(service->server, NULL), NULL) == 0;
}

static void api_request_on_answer(struct caller *caller, const char *text, size_t size, json_t *json) {
        struct api_request *api_request = (struct api_request *) caller;
        struct err err;
        (void) json;
        if (!api_request->request)
                api_request_free(api_request);
        else if (is_crowded(api_request, size, &err))
                api_request_problem(api_request, 503, "busy", err.message,
                                    "read what is on its way, or try again in a moment");
        else if (api_request->is_begun && size <= API_REQUEST_ANSWER_MAX) {
                stream_end(api_request, text, size);
                api_request_free(api_request);
        } else if (api_request->finish)
                api_request->finish(api_request, text, size);
        else
                answer_text(api_request, 200, text, size);
}

static void api_request_on_refuse(struct caller *caller, const struct err *err) {
        api_request_refuse((struct api_request *) caller, err);
}

static void api_request_on_accepted(struct caller *caller, const char *run_id) {
        struct api_request *api_request = (struct api_request *) caller;
        if (!api_request->request)
                return;
        if (api_request->is_detached) {
                char text[96];
                int size = snprintf(text, sizeof(text), "{\"run_id\":\"%s\"}", run_id);
                (void) http_respond(api_request->request, 202, "application/json", text, (size_t) size);
                api_request_go_on_alone(api_request);
        }
}

/* Not earlier: a run that could not begin is answered with a status of its own, not with an error in a stream under a
 * 200. */
static void api_request_on_begun(struct caller *caller, const char *run_id) {
        struct api_request *api_request = (struct api_request *) caller;
        if (api_request->request && api_request->form != API_REQUEST_WHOLE)
                stream_begin(api_request, run_id);
}

static void api_request_on_output(struct caller *caller, const struct caller_output *output) {
        struct api_request *api_request = (struct api_request *) caller;
        if (api_request->request)
                stream_put_output(api_request, output);
}

static void api_request_on_display(struct caller *caller, const char *data, size_t size) {
        struct api_request *api_request = (struct api_request *) caller;
        if (api_request->request && !is_crowded(api_request, size, NULL)) /* the result has it */
                stream_put_display(api_request, data, size);
}

static bool api_request_wants_more(const struct caller *caller) {
        const struct api_request *api_request = (const struct api_request *) caller;
        return api_request->request && http_stream_wants_more(api_request->request);
}

static const struct caller_type caller_type = { .answer = api_request_on_answer,
                                                .refuse = api_request_on_refuse,
                                                .accepted = api_request_on_accepted,
                                                .begun = api_request_on_begun,
                                                .output = api_request_on_output,
                                                .display = api_request_on_display,
                                                .wants_more = api_request_wants_more,
                                                .via = "http" };

void api_request_beat_all(struct service *service) {
        uint64_t now_ms = loop_now_ms();
        for (struct api_request *api_request = service->api_requests; api_request; api_request = api_request->next)
                if (api_request->request && api_request->is_begun && now_ms - api_request->sent_ms >= BEAT_MS)
                        stream_beat(api_request);
}
