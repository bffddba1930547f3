#include "api/mcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "base/base64.h"
#include "base/memory.h"
#include "http/media.h"
#include "mcp/mcp.h"
#include "mcp/place.h"
#include "mcp/server.h"
#include "session/manager.h"
#include "session/run.h"

static const char session_header[] = "Mcp-Session-Id";
enum { SESSION_MAX = 64, NAME_MAX_BYTES = 16 << 10 };

struct mcp_request {
        struct mcp_call call; /* the first */
        struct mcp_peer peer;
        struct api_request *api;
        struct mcp_request *next;
        char session[SESSION_MAX + 1]; /* distinguishes clients of the older era with one key; "": none */
        bool takes_stream, is_begun, is_broken;
};

static struct mcp_request *mcp_request_of(struct mcp_call *call) {
        return (struct mcp_request *) call;
}

/* ---- the way back ---- */

static void put_event(struct mcp_request *own, const char *text, size_t size) {
        static const char head[] = "event: message\ndata: ", tail[] = "\n\n";
        _cleanup_json_writer_ struct json_writer event = { 0 };
        json_writer_put(&event, head, sizeof(head) - 1);
        json_writer_put(&event, text, size);
        json_writer_put(&event, tail, sizeof(tail) - 1);
        if (event.failed || http_stream_write(own->api->request, event.bytes, event.size) < 0)
                own->is_broken = true;
}

static void on_notify(struct mcp_call *call, const char *text, size_t size) {
        struct mcp_request *own = mcp_request_of(call);
        struct http_request *request = own->api->request;
        if (!own->takes_stream || !request)
                return;
        if (!own->is_begun) {
                (void) http_add_header(request, "X-Accel-Buffering", "no"); /* for proxies that would collect it */
                if (http_stream_begin(request, 200, "text/event-stream", HTTP_CHUNKED) < 0)
                        return; /* the answer comes as one, then */
                own->is_begun = true;
                own->api->service->counted.streams++;
        }
        if (http_stream_wants_more(request)) /* a client that does not read gets no progress */
                put_event(own, text, size);
}

static void send_whole(struct http_request *request, int status, const char *text, size_t size) {
        static const char type[] = "application/json";
        int code = http_respond(request, status, type, text, size);
        if (code == -EFBIG && http_stream_begin(request, status, type, (int64_t) size) == 0) {
                (void) http_stream_write(request, text, size);
                http_stream_end(request); /* or, if it was not taken, the client sees that it is not whole */
        } else if (code < 0)
                http_problem(request, 500, "system", "the answer cannot be written", NULL);
}

static void on_respond(struct mcp_call *call, int status, const char *text, size_t size) {
        struct mcp_request *own = mcp_request_of(call);
        struct http_request *request = own->api->request;
        if (!request)
                return;
        if (own->is_begun) {
                put_event(own, text, size);
                if (own->is_broken)
                        http_stream_abort(request);
                else
                        http_stream_end(request);
        } else
                send_whole(request, status, text, size);
        api_request_go_on_alone(own->api);
}

static int on_count_run(struct mcp_call *call, struct err *err) {
        return api_request_count_run(mcp_request_of(call)->api, err);
}

static int on_admit_sandbox(struct mcp_call *call, const char *name, struct err *err) {
        return sandbox_has_room(mcp_request_of(call)->api, name, err) ? 0 : -1;
}

static void on_release(struct mcp_call *call) {
        struct mcp_request *own = mcp_request_of(call);
        for (struct mcp_request **at = &own->api->service->mcp_requests; *at; at = &(*at)->next)
                if (*at == own) {
                        *at = own->next;
                        break;
                }
        api_request_free(own->api);
        free(own);
}

static const struct mcp_link link = { .notify = on_notify,
                                      .respond = on_respond,
                                      .count_run = on_count_run,
                                      .admit_sandbox = on_admit_sandbox,
                                      .release = on_release };

/* A client of the modern era cancels its call by disconnecting. */
static void api_mcp_on_gone(void *context) {
        struct mcp_request *own = context;
        bool ends_run = own->call.era == MCP_MODERN && !own->peer.manager->draining;
        api_request_go_on_alone(own->api);
        mcp_call_leave(&own->call, ends_run);
}

static const struct http_events waiting_events = { .on_gone = api_mcp_on_gone };

void mcp_drop_all(struct service *service) {
        while (service->mcp_requests)
                mcp_call_drop(&service->mcp_requests->call);
}

/* ---- headers ---- */

static int refuse_header(struct mcp_error *error, const char *name) {
        return mcp_error_set(error, MCP_HEADER_MISMATCH, 400, "the header %s is missing, or differs from the message",
                             name);
}

/* A header encodes other characters as =?base64?…?=. */
static bool is_same_name(const char *header, const char *value) {
        static const char mark[] = "=?base64?", end[] = "?=";
        size_t size = strlen(header), n = 0;
        if (strncmp(header, mark, strlen(mark)) != 0 || size < strlen(mark) + strlen(end) || size > NAME_MAX_BYTES)
                return strcmp(header, value) == 0;
        size_t inside = size - strlen(mark) - strlen(end);
        _cleanup_free_ char *decoded = malloc(inside / 4 * 3 + 4);
        return decoded && strcmp(header + size - strlen(end), end) == 0 &&
               base64_decode(header + strlen(mark), inside, decoded, &n) == 0 && n == strlen(value) &&
               memcmp(decoded, value, n) == 0;
}

static int check_modern_headers(const struct http_request *request, const struct mcp_message *message,
                                struct mcp_error *error) {
        const char *version = http_header(request, "MCP-Protocol-Version");
        const char *method = http_header(request, "Mcp-Method"), *name = http_header(request, "Mcp-Name");
        const char *said = json_string_value(json_object_get(message->meta, MCP_META "protocolVersion"));
        const char *named_by = server_named_by(message->method);
        const char *named = named_by ? json_string_value(json_object_get(message->params, named_by)) : NULL;
        if (!version || (said && strcmp(version, said) != 0))
                return refuse_header(error, "MCP-Protocol-Version");
        if (!method || strcmp(method, message->method) != 0)
                return refuse_header(error, "Mcp-Method");
        if (named && (!name || !is_same_name(name, named)))
                return refuse_header(error, "Mcp-Name");
        return 0;
}

/* A header that names an unknown version; without one, the older era is assumed. */
static int check_version_header(const char *version, struct mcp_error *error) {
        static const char *const known[] = { MCP_MODERN_VERSION, MCP_LEGACY_VERSION, MCP_OLDEST_VERSION, "2025-03-26" };
        for (size_t i = 0; version && i < ELEMENTS(known); i++)
                if (strcmp(known[i], version) == 0)
                        return 0;
        if (!version)
                return 0;
        (void) mcp_error_set(error, MCP_UNSUPPORTED_VERSION, 400, "protocol version \"%.40s\" is not supported",
                             version);
        error->data = json_pack("{s:[s,s,s], s:s}", "supported", MCP_MODERN_VERSION, MCP_LEGACY_VERSION,
                                MCP_OLDEST_VERSION, "requested", version);
        return -1;
}

static int check_message(const struct http_request *request, struct mcp_message *message, struct mcp_error *error) {
        const char *version = http_header(request, "MCP-Protocol-Version");
        const char *said = json_string_value(json_object_get(message->meta, MCP_META "protocolVersion"));
        if (said && version && strcmp(said, version) != 0)
                return refuse_header(error, "MCP-Protocol-Version");
        if (!said && check_version_header(version, error) < 0)
                return -1;
        if (mcp_message_check_era(message, version, error) < 0)
                return -1;
        return message->era == MCP_MODERN && message->kind != MCP_RESPONSE
                       ? check_modern_headers(request, message, error)
                       : 0;
}

/* ---- the message ---- */

static void answer_error(struct api_request *api, const json_t *id, struct mcp_error *error) {
        _cleanup_free_ char *text = mcp_error_text(id, error);
        send_whole(api->request, error->status, text ? text : "", text ? strlen(text) : 0);
        api_request_free(api);
}

static void mcp_cancel(struct service *service, const struct api_request *api, const json_t *id, const char *session) {
        for (struct mcp_request *own = service->mcp_requests; id && own; own = own->next)
                if (own->call.link && own->call.era == MCP_LEGACY && json_equal(own->call.id, id) &&
                    strcmp(own->peer.owner, api->visitor.owner) == 0 && strcmp(own->session, session) == 0) {
                        struct http_request *request = own->api->request;
                        own->api->request = NULL; /* nothing more is sent for it */
                        if (request && own->is_begun)
                                http_stream_end(request);
                        else if (request)
                                (void) http_respond(request, 202, NULL, "", 0);
                        api_request_go_on_alone(own->api);
                        mcp_call_cancel(&own->call);
                        return;
                }
}

static void take_notification(struct api_request *api, const struct mcp_message *message) {
        const char *session = http_header(api->request, session_header);
        if (message->kind == MCP_NOTIFICATION && strcmp(message->method, "notifications/cancelled") == 0 &&
            message->era == MCP_LEGACY)
                mcp_cancel(api->service, api, json_object_get(message->params, "requestId"), session ? session : "");
        (void) http_respond(api->request, 202, NULL, "", 0);
        api_request_free(api);
}

static const char *describe_place(void) {
        static char *place;
        if (!place)
                place = place_describe(NULL);
        return place ? place : "";
}

static void fill_peer(struct mcp_peer *peer, struct api_request *api) {
        peer->manager = api->service->manager;
        peer->owner = api->visitor.owner;
        peer->from = http_peer(api->request)->address;
        peer->place = describe_place();
        peer->has_fixtures = place_has_fixtures();
        if (!*peer->owner) /* sessions that people made by hand do not belong to MCP */
                (void) snprintf(peer->prefix, sizeof(peer->prefix), "mcp-");
}

/* A client of the older era gets a name, so that its cancellations do not end calls of others with the same key. */
static void name_session(struct mcp_request *own, const struct mcp_message *message) {
        const char *given = http_header(own->api->request, session_header);
        char id[33];
        if (message->era != MCP_LEGACY)
                return;
        if (strcmp(message->method, "initialize") == 0 && run_make_id(id) == 0)
                (void) http_add_header(own->api->request, session_header, id);
        else if (given && strlen(given) <= SESSION_MAX)
                (void) snprintf(own->session, sizeof(own->session), "%s", given);
}

static void begin_call(struct api_request *api, const struct mcp_message *message) {
        struct mcp_request *own = calloc(1, sizeof(*own));
        struct service *service = api->service;
        struct mcp_error error;
        if (!own) {
                (void) mcp_error_set(&error, MCP_INTERNAL_ERROR, 503, "the service is out of memory");
                answer_error(api, message->id, &error);
                return;
        }
        own->api = api;
        own->takes_stream = http_accept_quality(http_header(api->request, "Accept"), "text/event-stream") > 0;
        own->next = service->mcp_requests;
        service->mcp_requests = own;
        fill_peer(&own->peer, api);
        name_session(own, message);
        http_attend(api->request, &waiting_events, own);
        mcp_call_init(&own->call, &link, &own->peer, message);
        mcp_call_start(&own->call, message);
}

static void on_whole(void *context, struct http_request *request, const char *bytes, size_t size) {
        struct api_request *api = context;
        struct mcp_message message;
        struct mcp_error error;
        json_t *json = NULL;
        if (!request) { /* it disconnected, or sent too much, and was answered */
                api_request_free(api);
                return;
        }
        if (mcp_message_parse(bytes, size, &json, &message, &error) < 0 || check_message(request, &message, &error) < 0)
                answer_error(api, message.id, &error);
        else if (message.kind == MCP_REQUEST)
                begin_call(api, &message);
        else
                take_notification(api, &message);
        json_decref(json);
}

void mcp_post(struct api_request *api) {
        struct mcp_error error;
        if (!http_type_is(http_header(api->request, "Content-Type"), "application/json")) {
                (void) mcp_error_set(&error, MCP_INVALID_REQUEST, 415,
                                     "the message must be JSON, with the header Content-Type: application/json");
                answer_error(api, NULL, &error);
        } else if (http_content_length(api->request) > MCP_MESSAGE_MAX) {
                (void) mcp_error_set(&error, MCP_INVALID_REQUEST, 413,
                                     "the message is larger than %d bytes; write large contents in several steps",
                                     MCP_MESSAGE_MAX);
                answer_error(api, NULL, &error);
        } else if (http_collect_body(api->request, MCP_MESSAGE_MAX, on_whole, api) < 0)
                api_request_free(api); /* answered already */
}
