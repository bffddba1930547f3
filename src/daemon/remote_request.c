#include "daemon/remote_request.h"
#include "daemon/remote_request_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fd.h"
#include "base/memory.h"
#include "daemon/remote_reply.h"
#include "daemon/socket_client.h"
#include "session/serve_options.h"
#include "session/session.h"

enum {
        PAUSE_MIN_MS = 50,
        PAUSE_MAX_MS = 1000,
        QUEUE_MAX = 8 << 20,
        INSTANCE_MAKING_MS = 900000, /* for its helper, which has a deadline for each step */
};

static void remote_request_on_event(void *context, uint32_t events);
static void connect_now(struct remote_request *request);

/* ---- the end ---- */

struct session *remote_request_session(const struct remote_request *request) {
        return *request->session_id ? session_find(request->manager, "", request->session_id) : NULL;
}

void remote_request_note_state(const struct remote_request *request, const char *state) {
        struct session *session = remote_request_session(request);
        bool is_word = state && strlen(state) < sizeof(session->remote.state) &&
                       strspn(state, "abcdefghijklmnopqrstuvwxyz") == strlen(state);
        if (session && session->is_remote && is_word) /* an attacker may control the other side */
                (void) snprintf(session->remote.state, sizeof(session->remote.state), "%s", state);
}

static void hang_up(struct remote_request *request, bool is_kept) {
        loop_unwatch(&request->watch);
        if (request->fd >= 0 && is_kept)
                remote_link_give(request->manager, &request->place, take_fd(&request->fd));
        fd_close(&request->fd);
        message_parser_release(&request->parser);
        message_queue_release(&request->queue);
}

/* The sweep leaves the instance of an ephemeral run alone while it is under way. */
static int note_run(const struct remote_request *request, bool is_on, struct err *err) {
        char(*runs)[INSTANCE_NAME_MAX] = request->manager->remote.runs;
        const char *name = request->place.order.name;
        for (size_t i = 0; i < REMOTE_RUNS_MAX; i++)
                if (strcmp(runs[i], is_on ? "" : name) == 0) {
                        (void) snprintf(runs[i], sizeof(runs[i]), "%s", is_on ? name : "");
                        return 0;
                }
        return is_on ? err_set(err, ERR_LIMIT,
                               "there are %d ephemeral runs in instances of their own already: wait for some to end",
                               REMOTE_RUNS_MAX)
                     : 0;
}

void remote_request_free(struct remote_request *request, bool keeps_connection) {
        if (request->caller)
                remote_upload_drop(request);
        loop_timer_drop(&request->timer);
        hang_up(request, keeps_connection);
        if (request->place.is_ephemeral) {
                (void) note_run(request, false, NULL);
                remote_place_remove(&request->place);
        }
        json_decref(request->json);
        free(request->code);
        free(request);
}

static void on_leave(void *context) {
        struct remote_request *request = context;
        if (request->upload) /* the client frees it */
                request->upload->request = NULL;
        request->upload = NULL;
        request->caller = NULL;
        remote_request_free(request, false);
}

void remote_request_watch(const struct remote_request *request) {
        if (request->watch)
                (void) loop_watch_change(request->watch,
                                         (uint32_t) EPOLLIN |
                                                 (message_queue_size(&request->queue) > 0 ? (uint32_t) EPOLLOUT : 0));
}

static void on_wanted(void *context);
static const struct caller_source source = { .leave = on_leave, .feed = on_wanted };

struct remote_request *remote_request_of(const struct caller *caller) {
        return caller->source == &source ? caller->source_context : NULL;
}

void remote_request_refuse(struct remote_request *request, const struct err *err, bool keeps_connection) {
        struct caller *caller = request->caller;
        struct session *session = request->is_new && !request->is_started ? remote_request_session(request) : NULL;
        const struct err copy = *err;
        remote_request_note_state(request, request->is_started ? "idle" : NULL);
        remote_request_free(request, keeps_connection);
        if (session)
                session_remove(session, false);
        caller_refuse(caller, &copy);
}

/* ---- connecting, and connecting again ---- */

static void on_timer(void *context) {
        struct remote_request *request = context;
        struct err err;
        request->timer = NULL;
        if (request->fd < 0) {
                connect_now(request);
                return;
        }
        (void) err_set(&err, ERR_TIMEOUT, "the remote at %.200s does not answer in time (--remote-timeout)",
                       remote_place_words(request->manager, &request->place));
        remote_request_refuse(request, &err, false);
}

/* -1 with err if the connection is not made again for this request. */
static int check_retry(const struct remote_request *request, bool was_sent, const struct err *why, struct err *err) {
        const char *colon = why ? ": " : "", *reason = why ? why->message : "";
        if ((was_sent && !(request->traits & REMOTE_AGAIN)) || request->traits & REMOTE_UPLOAD)
                return err_set(err, ERR_GONE,
                               "the connection to the remote at %.200s broke%s%.400s, and the request is not sent "
                               "again by itself: look whether it was done",
                               remote_place_words(request->manager, &request->place), colon, reason);
        if (loop_now_ms() - request->away_since_ms >= request->manager->options->engines.remote_timeout_ms)
                return err_set(err, ERR_GONE, "the remote cannot be reached%s%.600s%s%s", colon, reason,
                               request->is_started ? "; the run goes on there: " : "",
                               request->is_started ? request->run_id : "");
        return 0;
}

static uint64_t longer_pause(uint64_t pause_ms) {
        if (pause_ms == 0)
                return PAUSE_MIN_MS;
        return pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS;
}

void remote_request_reconnect(struct remote_request *request, const struct err *why) {
        uint64_t now_ms = loop_now_ms();
        struct err err;
        bool was_sent = request->fd >= 0 && why == NULL;
        hang_up(request, false);
        if (request->away_since_ms == 0) {
                request->away_since_ms = now_ms;
                request->pause_ms = 0;
        }
        if (check_retry(request, was_sent, why, &err) < 0) {
                remote_request_refuse(request, &err, false);
                return;
        }
        loop_timer_drop(&request->timer);
        request->timer = loop_timer(request->manager->loop, now_ms + request->pause_ms, on_timer, request);
        request->pause_ms = longer_pause(request->pause_ms);
        if (!request->timer) {
                (void) err_set(&err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                remote_request_refuse(request, &err, false);
        }
}

/* The body to send: the request itself, or a request for the rest of its answer. A new reference. */
static json_t *request_text(struct remote_request *request) {
        json_t *json = json_copy(request->json);
        if (request->is_started && request->caller->stream && *request->remote_name) {
                json_decref(json);
                request->skip = request->passed;
                return json_pack("{s:s, s:s, s:s, s:I}", "op", "run.read", "session", request->remote_name, "run",
                                 request->run_id, "from", (json_int_t) (request->number > 0 ? request->number : 1));
        }
        if (request->traits & REMOTE_DOWNLOAD && request->received > 0) {
                json_t *size = json_object_get(json, "size");
                json_int_t offset = json_integer_value(json_object_get(json, "offset"));
                (void) json_object_set_new(json, "offset", json_integer(offset + (json_int_t) request->received));
                if (json_is_integer(size))
                        (void) json_object_set_new(
                                json, "size", json_integer(json_integer_value(size) - (json_int_t) request->received));
        }
        return json;
}

static int send_request(struct remote_request *request) {
        json_t *json = request_text(request);
        _cleanup_free_ char *text = json_dumps(json, JSON_COMPACT);
        bool has_code = request->code && json_object_get(json, "code_follows");
        json_decref(json);
        int code = text ? message_queue_send(&request->queue, request->fd, MESSAGE_REQUEST, REMOTE_REQUEST_NUMBER, 0,
                                             text, strlen(text))
                        : -ENOMEM;
        for (size_t at = 0; has_code && code >= 0 && at < request->code_size;) {
                size_t size = request->code_size - at < MESSAGE_DATA_MAX ? request->code_size - at : MESSAGE_DATA_MAX;
                code = message_queue_send(&request->queue, request->fd, MESSAGE_DATA, REMOTE_REQUEST_NUMBER, 0,
                                          request->code + at, size);
                at += size;
        }
        if (has_code && code >= 0)
                code = message_queue_send(&request->queue, request->fd, MESSAGE_END, REMOTE_REQUEST_NUMBER, 0, "", 0);
        return code < 0 ? code : 0;
}

static void connect_now(struct remote_request *request) {
        struct session_manager *manager = request->manager;
        struct err err;
        if (remote_link_take(manager, &request->place, &request->fd, &request->is_fresh, &err) < 0) {
                request->fd = -1;
                remote_request_reconnect(request, &err);
                return;
        }
        request->has_answered = false;
        request->parser = message_parser_make(MESSAGE_FROM_DAEMON);
        request->queue = message_queue_make(QUEUE_MAX);
        request->watch = loop_watch(manager->loop, request->fd, EPOLLIN, remote_request_on_event, request);
        if (!request->watch || send_request(request) < 0) {
                (void) err_set(&err, ERR_GONE, "the helper that connects to the remote has died");
                remote_request_reconnect(request, &err);
                return;
        }
        remote_request_watch(request);
        /* The remote acknowledges a run at once; only its end may take any time. */
        loop_timer_drop(&request->timer);
        uint64_t wait_ms = 2 * manager->options->engines.remote_timeout_ms; /* to connect, and to answer */
        if (request->place.is_instance)
                wait_ms += INSTANCE_MAKING_MS;
        if (!(request->traits & (REMOTE_UPLOAD | REMOTE_DOWNLOAD)) && !request->is_started)
                request->timer = loop_timer(manager->loop, loop_now_ms() + wait_ms, on_timer, request);
}

/* ---- a turn ---- */

static bool is_wanted(const struct remote_request *request) {
        const struct caller *caller = request->caller;
        return !caller->type->wants_more || caller->type->wants_more(caller);
}

/* Handles what was received. False: the request has ended. If the caller takes no more of a file, the rest waits in the
 * parser. */
static bool remote_request_take_messages(struct remote_request *request) {
        bool is_file = request->traits & REMOTE_DOWNLOAD;
        struct message message;
        int code = 0;
        while ((!is_file || is_wanted(request)) && (code = message_parser_next(&request->parser, &message)) == 1)
                if (!remote_reply_take(request, &message))
                        return false;
        if (code < 0) {
                struct err err;
                (void) err_set(&err, ERR_PROTOCOL, "the remote broke the protocol");
                remote_request_refuse(request, &err, false);
                return false;
        }
        /* A client that does not read makes only the remote wait. */
        if ((is_file || request->caller->stream) && !is_wanted(request))
                (void) loop_watch_change(request->watch,
                                         message_queue_size(&request->queue) > 0 ? (uint32_t) EPOLLOUT : 0);
        return true;
}

/* The caller has room again. Data received earlier goes first, and may be the end of it. */
static void on_wanted(void *context) {
        struct remote_request *request = context;
        remote_request_watch(request);
        if (request->watch && request->traits & REMOTE_DOWNLOAD)
                (void) remote_request_take_messages(request);
}

/* False: the request is over. */
static bool remote_request_receive(struct remote_request *request) {
        long n = message_parser_read(&request->parser, request->fd);
        if (n == -EAGAIN || n == -EINTR)
                return true;
        if (n <= 0) {
                remote_request_reconnect(request, NULL);
                return false;
        }
        return remote_request_take_messages(request);
}

static void remote_request_on_event(void *context, uint32_t events) {
        struct remote_request *request = context;
        if (events & EPOLLOUT) {
                if (message_queue_flush(&request->queue, request->fd) < 0) {
                        remote_request_reconnect(request, NULL);
                        return;
                }
                bool has_room = message_queue_size(&request->queue) < REMOTE_REQUEST_QUEUE_HIGH;
                if (request->upload && has_room)
                        client_hold(client_request_of(request->caller)->client, false);
                remote_request_watch(request);
                if (has_room && request->traits & REMOTE_UPLOAD && request->caller->type->room) {
                        request->caller->type->room(request->caller); /* which may be the end of it */
                        return;
                }
        }
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                (void) remote_request_receive(request);
}

/* ---- the beginning ---- */

int remote_request_begin(const struct remote_order *order, struct err *err) {
        struct remote_request *request = calloc(1, sizeof(*request));
        if (!request)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        request->caller = order->caller;
        request->manager = order->caller->manager;
        request->fd = -1;
        request->json = json_incref(order->json);
        request->traits = order->traits;
        request->is_new = order->is_new;
        request->detach = order->detach;
        if (order->session) {
                (void) snprintf(request->session_id, sizeof(request->session_id), "%s", order->session->row.id);
                (void) snprintf(request->session_name, sizeof(request->session_name), "%s", order->session->row.name);
                remote_name(order->session, request->remote_name);
        }
        if (order->session)
                request->place = remote_place_of(order->session);
        else if (order->place)
                request->place = *order->place;
        if (request->place.is_ephemeral && note_run(request, true, err) < 0) {
                request->caller = NULL;
                request->place.is_ephemeral = false;
                remote_request_free(request, false);
                return -1;
        }
        if (order->run_id)
                (void) snprintf(request->run_id, sizeof(request->run_id), "%s", order->run_id);
        if (order->code && !(request->code = malloc(order->code_size + 1))) {
                request->caller = NULL;
                remote_request_free(request, false);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        if (order->code) {
                memcpy(request->code, order->code, order->code_size);
                request->code_size = order->code_size;
        }
        if (order->traits & REMOTE_UPLOAD && client_request_of(order->caller) &&
            remote_upload_expect(request, err) < 0) {
                request->caller = NULL;
                remote_request_free(request, false);
                return -1;
        }
        order->caller->source = &source;
        order->caller->source_context = request;
        connect_now(request);
        return 0;
}
