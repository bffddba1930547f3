#include "daemon/remote_reply.h"

#include <string.h>

#include "base/json_bounds.h"
#include "base/memory.h"
#include "daemon/remote_answer.h"
#include "daemon/remote_request.h"
#include "daemon/remote_request_state.h"
#include "daemon/socket_client.h"
#include "engine/remote_tunnel.h"
#include "session/session.h"

enum { PARSED_MAX = 4 << 20 }; /* answers and events larger than this are checked, not parsed */

static void note_made(const struct remote_request *request) {
        struct session *session = remote_request_session(request);
        if (session)
                session->remote.is_made_there = true;
}

/* ---- answers ---- */

static void answer_json(struct remote_request *request, json_t *answer) {
        struct caller *caller = request->caller;
        struct session *session = request->traits & REMOTE_REMOVAL ? remote_request_session(request) : NULL;
        (void) json_object_del(answer, "ok");
        if (json_object_get(answer, "state"))
                remote_request_note_state(request, json_string_value(json_object_get(answer, "state")));
        if (request->traits & REMOTE_SESSION && remote_request_session(request))
                remote_answer_shape_session(answer, remote_request_session(request), request->is_new);
        remote_request_free(request, true);
        if (session)
                session_remove(session, false);
        caller_answer(caller, answer);
}

static void answer_text(struct remote_request *request, const char *bytes, size_t size) {
        struct caller *caller = request->caller;
        struct err err;
        _cleanup_free_ char *text = remote_answer_copy_text(bytes, size, &size, &err);
        if (!text) {
                remote_request_refuse(request, &err, false);
                return;
        }
        remote_request_note_state(request, "idle");
        remote_request_free(request, true);
        caller_answer_text(caller, text, size, NULL);
}

/* Marks the end of an event: output of an event that was passed on whole is not sent again. */
static void end_event(const struct remote_request *request) {
        const struct caller_output last = { request->is_error, true, request->number, "", 0 };
        if (request->number > 0 && request->caller->stream)
                request->caller->type->output(request->caller, &last);
}

static void take_refusal(struct remote_request *request, json_t *answer, bool is_notice) {
        const struct err err =
                remote_answer_refusal(json_object_get(answer, "error"), request->remote_name, request->session_name);
        json_decref(answer);
        if (is_notice && (err.code == ERR_GONE || err.code == ERR_TIMEOUT)) {
                request->has_answered = false;
                remote_request_reconnect(request, &err);
                return;
        }
        if (!is_notice && err.code == ERR_NOT_FOUND && request->traits & REMOTE_REMOVAL) {
                answer_json(request, json_object()); /* it was removed by a request whose answer was lost */
                return;
        }
        bool describes = !is_notice && err.code == ERR_NOT_FOUND && request->traits & REMOTE_SESSION &&
                         !request->is_new && remote_request_session(request);
        json_t *described = describes ? remote_answer_describe_new(remote_request_session(request)) : NULL;
        if (described)
                answer_json(request, described);
        else
                remote_request_refuse(request, &err, !is_notice);
}

static void remote_reply_take_answer(struct remote_request *request, const struct message *message) {
        bool is_notice = message->request == REMOTE_TUNNEL_NOTICE;
        struct err err;
        if (!is_notice)
                end_event(request);
        if (message->size > PARSED_MAX) {
                answer_text(request, message->bytes, message->size);
                return;
        }
        json_t *answer = json_is_bounded(message->bytes, message->size)
                                 ? json_loadb(message->bytes, message->size, JSON_REJECT_DUPLICATES, NULL)
                                 : NULL;
        if (!json_is_object(answer)) {
                json_decref(answer);
                (void) err_set(&err, ERR_PROTOCOL, "the remote's answer is damaged");
                remote_request_refuse(request, &err, false);
        } else if (!json_is_true(json_object_get(answer, "ok")))
                take_refusal(request, answer, is_notice);
        else {
                if (request->traits & REMOTE_RUN)
                        remote_request_note_state(request, "idle");
                if (request->traits & (REMOTE_RUN | REMOTE_SESSION))
                        note_made(request);
                answer_json(request, answer);
        }
}

/* ---- what comes before an answer ---- */

/* False: the request is over. */
static bool take_start(struct remote_request *request) {
        struct caller *caller = request->caller;
        loop_timer_drop(&request->timer);
        if (request->is_started)
                return true;
        request->is_started = true;
        remote_request_note_state(request, "running");
        if (request->detach) {
                json_t *answer = json_pack("{s:s, s:s}", "run_id", request->run_id, "session", request->session_id);
                remote_request_free(request, false); /* the run goes on there */
                caller_answer(caller, answer);
                return false;
        }
        if (caller->type->accepted)
                caller->type->accepted(caller, request->run_id);
        return true;
}

static bool remote_reply_take_event(struct remote_request *request, const struct message *message) {
        struct caller *caller = request->caller;
        json_t *event = message->size <= PARSED_MAX && json_is_bounded(message->bytes, message->size)
                                ? json_loadb(message->bytes, message->size, 0, NULL)
                                : NULL;
        const char *kind = json_string_value(json_object_get(event, "event"));
        bool goes_on = true;
        if (kind && strcmp(kind, "start") == 0 && request->traits & REMOTE_RUN)
                goes_on = take_start(request);
        else if (kind && strcmp(kind, "display") == 0 && caller->stream) {
                _cleanup_free_ char *data = json_dumps(json_object_get(event, "data"), JSON_COMPACT | JSON_ENCODE_ANY);
                caller_report_begun(caller, request->run_id);
                if (data)
                        caller->type->display(caller, data, strlen(data));
        }
        json_decref(event);
        return goes_on;
}

static bool remote_reply_take_output(struct remote_request *request, const struct message *message) {
        struct caller *caller = request->caller;
        uint32_t number;
        const char *bytes;
        size_t size;
        if (!message_get_output(message, &number, &bytes, &size) || !caller->stream || number < request->number)
                return true; /* what was passed on already comes again */
        if (number > request->number) {
                end_event(request);
                request->number = number;
                request->passed = request->skip = 0;
        }
        request->is_error = message->type == MESSAGE_ERR;
        size_t skipped = request->skip < size ? (size_t) request->skip : size;
        request->skip -= skipped;
        const struct caller_output piece = { request->is_error, false, number, bytes + skipped, size - skipped };
        request->passed += piece.size;
        if (piece.size > 0) {
                caller_report_begun(caller, request->run_id);
                caller->type->output(caller, &piece);
        }
        return true;
}

static void remote_reply_take_data(struct remote_request *request, const struct message *message) {
        struct client_request *local = client_request_of(request->caller);
        const struct caller_type *type = request->caller->type;
        if (!(request->traits & REMOTE_DOWNLOAD) || (!local && !type->data))
                return;
        request->received += message->type == MESSAGE_DATA ? message->size : 0;
        if (!local && message->type == MESSAGE_DATA)
                type->data(request->caller, message->bytes, message->size);
        if (local)
                client_send(local->client, message->type, local->number, message->bytes, message->size);
}

bool remote_reply_take(struct remote_request *request, const struct message *message) {
        if (message->request != REMOTE_REQUEST_NUMBER && message->request != REMOTE_TUNNEL_NOTICE) {
                struct err err;
                (void) err_set(&err, ERR_PROTOCOL, "the remote answers something that was not asked");
                remote_request_refuse(request, &err, false);
                return false;
        }
        request->has_answered = true;
        request->away_since_ms = message->request == REMOTE_REQUEST_NUMBER ? 0 : request->away_since_ms;
        switch (message->type) {
        case MESSAGE_EVENT:
                return remote_reply_take_event(request, message);
        case MESSAGE_OUT:
        case MESSAGE_ERR:
                return remote_reply_take_output(request, message);
        case MESSAGE_ANSWER:
                remote_reply_take_answer(request, message);
                return false;
        default:
                remote_reply_take_data(request, message);
                return true;
        }
}
