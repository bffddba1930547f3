#include "daemon/socket_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/json_bounds.h"
#include "base/json_writer.h"
#include "base/loop.h"
#include "base/memory.h"
#include "daemon/daemon.h"
#include "daemon/download.h"
#include "daemon/socket_request.h"
#include "daemon/upload.h"

enum {
        PIECE_BYTES = 256 << 10, /* bytes of an incoming file, and how many before others have a turn */
        PIECES_EACH = 4,
        MESSAGES_US = 1000, /* after so long with the messages of one client others have a turn, too */
};

static void socket_client_on_event(void *context, uint32_t events);

/* ---- requests under way ---- */

static const struct caller_type caller_type, channel_caller_type;

static bool client_has_request(const struct client *client, uint16_t number) {
        for (const struct client_request *request = client->requests; request; request = request->next)
                if (request->number == number)
                        return true;
        return false;
}

static struct client_request *open_request(struct client *client, uint16_t number) {
        struct client_request *request = malloc(sizeof(*request));
        if (!request)
                return NULL;
        *request = (struct client_request) {
                .caller = { .type = client->guard ? &channel_caller_type : &caller_type,
                            .manager = &client->daemon->manager,
                            .owner = client->owner,
                            .from = client->guard ? client->from : NULL,
                            .cursor = 1 },
                .next = client->requests,
                .client = client,
                .number = number,
        };
        client->requests = request;
        client->n_requests++;
        return request;
}

static void client_bury(struct client *client);

static void close_request(struct client_request *request) {
        struct client *client = request->client;
        for (struct client_request **at = &client->requests; *at; at = &(*at)->next)
                if (*at == request) {
                        *at = request->next;
                        client->n_requests--;
                        break;
                }
        if (request->is_admitted)
                client->guard->settled(client->guard_context, request->is_run);
        free(request);
        if (client->state == CLIENT_GONE && client->n_requests == 0)
                client_bury(client);
}

struct client_request *client_request_of(struct caller *caller) {
        return caller->type == &caller_type || caller->type == &channel_caller_type ? (struct client_request *) caller
                                                                                    : NULL;
}

int client_accept(struct daemon *daemon, int fd, const struct client_holder *holder, struct err *err) {
        _cleanup_fd_ int owned = fd;
        struct client *client = calloc(1, sizeof(*client));
        if (!client)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        client->daemon = daemon;
        client->fd = fd;
        client->parser = message_parser_make(MESSAGE_FROM_CLIENT);
        message_parser_take_pieces(&client->parser);
        client->queue = message_queue_make(CLIENT_QUEUE_MAX);
        client->queue.dir = daemon->manager.data_dir;
        client->watch = loop_watch(daemon->manager.loop, fd, EPOLLIN, socket_client_on_event, client);
        if (!client->watch) {
                free(client);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        /* A large socket buffer takes much output at once, while its reader is busy with the first part. Without the
         * privilege to exceed the system's limit, it gets the limit. */
        const int send_bytes = CLIENT_SOCKET_BYTES;
        if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_bytes, sizeof(send_bytes)) < 0)
                (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
        (void) take_fd(&owned);
        if (holder) {
                client->guard = holder->guard;
                client->guard_context = holder->context;
                (void) snprintf(client->owner, sizeof(client->owner), "%s", holder->owner);
                (void) snprintf(client->from, sizeof(client->from), "%s", holder->from);
                daemon->n_channels++;
        }
        client->next = daemon->clients;
        daemon->clients = client;
        daemon->n_clients++;
        return 0;
}

/* Frees what is left of it: no request is under way. */
static void client_bury(struct client *client) {
        struct daemon *daemon = client->daemon;
        for (struct client **at = &daemon->clients; *at; at = &(*at)->next) {
                if (*at == client) {
                        *at = client->next;
                        daemon->n_clients--;
                        break;
                }
        }
        if (client->guard) {
                daemon->n_channels--;
                client->guard->gone(client->guard_context);
        }
        message_parser_release(&client->parser);
        message_queue_release(&client->queue);
        free(client);
}

static void client_set_state(struct client *client, enum client_state state) {
        if (state > client->state)
                client->state = state;
}

/* Leaving one may end others. */
static struct client_request *first_to_leave(const struct client *client) {
        struct client_request *request = client->requests;
        while (request && request->is_left)
                request = request->next;
        return request;
}

static void leave_request(struct client_request *request) {
        struct caller *caller = &request->caller;
        request->is_left = true;
        struct run *run = caller_run(caller);
        /* A key's run counts until it has ended, also when the connection is gone. */
        if (request->is_run && run && !caller->cancel_on_disconnect) {
                caller->stream = true;
                caller->cursor = UINT64_MAX;
                return;
        }
        caller_leave(caller);
        close_request(request);
}

static void client_free(struct client *client) {
        download_free_all(client);
        while (client->uploads)
                upload_free(client, client->uploads);
        loop_unwatch(&client->watch);
        fd_close(&client->fd);
        client->n_requests++; /* it stays until all requests were visited */
        client_set_state(client, CLIENT_GONE);
        for (struct client_request *request; (request = first_to_leave(client));)
                leave_request(request);
        if (--client->n_requests == 0)
                client_bury(client);
}

/* Runs are no longer counted then. */
static void client_end(struct client *client) {
        for (struct client_request *request = client->requests; request; request = request->next)
                request->is_run = request->is_left = false;
        if (client->state != CLIENT_GONE) {
                client_free(client);
                return;
        }
        client->n_requests++;
        for (struct client_request *request; (request = first_to_leave(client));)
                leave_request(request);
        client->n_requests--;
        client_bury(client);
}

void client_free_all(struct daemon *daemon, bool is_guarded) {
        for (struct client *client = daemon->clients, *next; client; client = next) {
                next = client->next;
                if (is_guarded == (client->guard != NULL))
                        client_end(client);
        }
}

/* ---- sending ---- */

static void client_update_watch(struct client *client) {
        if (client->state == CLIENT_GONE)
                return;
        size_t queued = message_queue_size(&client->queue);
        /* The answer to another request may flush the whole queue: waiting streams continue then, too. */
        client->is_held_back |= !client_wants_more(client);
        bool waiting = queued > 0 || client->is_held_back || client->has_messages;
        bool is_read = client->state == CLIENT_OPEN && !client->is_not_read && !client->has_messages &&
                       client_wants_more(client);
        (void) loop_watch_change(client->watch, (is_read ? EPOLLIN : 0) | (waiting ? EPOLLOUT : 0));
}

void client_send(struct client *client, enum message_type type, uint16_t request, const void *bytes, size_t size) {
        if (client->state == CLIENT_GONE || (client->state == CLIENT_CLOSING && type != MESSAGE_ANSWER))
                return;
        if (message_queue_send(&client->queue, client->fd, type, request, 0, bytes, size) < 0)
                client_set_state(client, CLIENT_CLOSING); /* it has disconnected, or reads too slowly */
        client_update_watch(client);
}

void client_hold(struct client *client, bool is_held) {
        if (client->is_not_read == is_held)
                return;
        client->is_not_read = is_held;
        client_update_watch(client);
}

static int client_send_event(struct client *client, uint16_t request, const char *text, const int *fds, size_t n_fds) {
        if (client->state != CLIENT_OPEN || message_queue_size(&client->queue) > 0)
                return -EBUSY;
        int code = message_send_fds(client->fd, MESSAGE_EVENT, request, text, strlen(text), fds, n_fds);
        if (code < 0) {
                client_set_state(client, CLIENT_CLOSING);
                client_update_watch(client);
        }
        return code;
}

void client_feed_later(struct client *client) {
        client->is_held_back = true;
        client_update_watch(client);
}

bool client_wants_more(const struct client *client) {
        size_t high = client->guard ? CLIENT_CHANNEL_HIGH : CLIENT_STREAM_HIGH;
        return client->state == CLIENT_OPEN && message_queue_size(&client->queue) < high;
}

/* Of all connections of one key, or (NULL) of all keys. */
static uint64_t queued_for(const struct daemon *daemon, const char *owner) {
        uint64_t n = 0;
        for (const struct client *client = daemon->clients; client; client = client->next)
                if (client->guard && (!owner || strcmp(client->owner, owner) == 0))
                        n += message_queue_size(&client->queue);
        return n;
}

/* Large answers to a key are bounded together, as over HTTP: it could have hundreds of channels and read none. */
static bool is_crowded(const struct client *client, size_t size, struct err *err) {
        const struct share_claim claim = { .key = client->owner, .amount = size };
        return client->guard && size > CLIENT_ANSWER_SMALL &&
               share_judge(&client->daemon->manager.shares, SHARE_ANSWERS, &claim,
                           queued_for(client->daemon, client->owner), queued_for(client->daemon, NULL), err) < 0;
}

static void send_refusal(struct client *client, uint16_t number, const struct err *err) {
        json_t *answer = json_pack("{s:b, s:{s:s, s:s}}", "ok", 0, "error", "code", err_code_name(err->code), "message",
                                   err->message);
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);
        json_decref(answer);
        if (text)
                client_send(client, MESSAGE_ANSWER, number, text, strlen(text));
}

static void socket_client_on_refuse(struct caller *caller, const struct err *err) {
        struct client_request *request = (struct client_request *) caller;
        send_refusal(request->client, request->number, err);
        close_request(request);
}

/* {"ok": true, and what the text has after its brace. Large answers are not copied for that. */
static void socket_client_on_answer(struct caller *caller, const char *text, size_t size, json_t *json) {
        static const char ok[] = "{\"ok\":true,";
        struct client_request *request = (struct client_request *) caller;
        struct client *client = request->client;
        (void) json;
        struct err err;
        if (size + sizeof(ok) > MESSAGE_ANSWER_MAX) {
                (void) err_set(&err, ERR_LIMIT, "the result is larger than %d bytes; save it to a file instead",
                               MESSAGE_ANSWER_MAX);
                socket_client_on_refuse(caller, &err);
                return;
        }
        if (client->state != CLIENT_GONE && is_crowded(client, size, &err)) {
                err.code = ERR_BUSY;
                socket_client_on_refuse(caller, &err);
                return;
        }
        size_t n_ok = sizeof(ok) - (size == 2 ? 2 : 1); /* an empty object has nothing after the comma */
        if (client->state != CLIENT_GONE &&
            message_queue_send_joined(&client->queue, client->fd, MESSAGE_ANSWER, request->number, ok, n_ok, text + 1,
                                      size - 1) < 0)
                client_set_state(client, CLIENT_CLOSING);
        client_update_watch(client);
        close_request(request);
}

static void socket_client_on_output(struct caller *caller, const struct caller_output *output) {
        const struct client_request *request = (struct client_request *) caller;
        struct client *client = request->client;
        enum message_type type = output->is_error ? MESSAGE_ERR : MESSAGE_OUT;
        if (client->state == CLIENT_GONE || output->size == 0)
                return;
        if (message_queue_send(&client->queue, client->fd, type, request->number, (uint32_t) output->number,
                               output->bytes, output->size) < 0)
                client_set_state(client, CLIENT_CLOSING);
        client_update_watch(client);
}

static void socket_client_on_display(struct caller *caller, const char *data, size_t size) {
        const struct client_request *request = (struct client_request *) caller;
        _cleanup_json_writer_ struct json_writer event = { 0 };
        if (is_crowded(request->client, size, NULL))
                return; /* the result has it */
        json_writer_put_literal(&event, "{\"event\":\"display\",\"data\":");
        json_writer_put(&event, data, size);
        json_writer_put_literal(&event, "}");
        if (!event.failed)
                client_send(request->client, MESSAGE_EVENT, request->number, event.bytes, event.size);
}

/* A stream begins with the run's id, so that its reader can continue when the connection breaks. */
static void socket_client_on_accepted(struct caller *caller, const char *run_id) {
        const struct client_request *request = (struct client_request *) caller;
        char text[96];
        if (!(caller->stream || request->wants_start) || request->client->state == CLIENT_GONE)
                return;
        int size = snprintf(text, sizeof(text), "{\"event\":\"start\",\"run_id\":\"%.32s\"}", run_id);
        client_send(request->client, MESSAGE_EVENT, request->number, text, (size_t) size);
}

static bool socket_client_wants_more(const struct caller *caller) {
        return client_wants_more(((const struct client_request *) caller)->client);
}

static int on_hand_over(struct caller *caller, const char *text, const int *fds, size_t n_fds) {
        struct client_request *request = client_request_of(caller);
        if (n_fds == 0) {
                client_send(request->client, MESSAGE_EVENT, request->number, text, strlen(text));
                return 0;
        }
        return client_send_event(request->client, request->number, text, fds, n_fds);
}

static const struct caller_type caller_type = { .answer = socket_client_on_answer,
                                                .refuse = socket_client_on_refuse,
                                                .accepted = socket_client_on_accepted,
                                                .output = socket_client_on_output,
                                                .hand_over = on_hand_over,
                                                .display = socket_client_on_display,
                                                .wants_more = socket_client_wants_more,
                                                .via = "socket" };

/* Descriptors cannot go to another machine. */
static const struct caller_type channel_caller_type = { .answer = socket_client_on_answer,
                                                        .refuse = socket_client_on_refuse,
                                                        .accepted = socket_client_on_accepted,
                                                        .output = socket_client_on_output,
                                                        .display = socket_client_on_display,
                                                        .wants_more = socket_client_wants_more,
                                                        .via = "channel" };

/* ---- receiving ---- */

/* Sends the error and reads nothing more. */
static void client_hang_up(struct client *client, const char *why) {
        struct err err;
        (void) err_set(&err, ERR_PROTOCOL, "%s: the connection is closed", why);
        send_refusal(client, 0, &err);
        client_set_state(client, CLIENT_CLOSING);
        client_update_watch(client);
}

static int client_admit(struct client_request *request, json_t *json, struct err *err) {
        const struct client *client = request->client;
        if (client->guard && client->guard->admit(client->guard_context, json, &request->is_run, err) < 0)
                return -1;
        request->wants_start = json_is_true(json_object_get(json, "acknowledge"));
        request->is_admitted = client->guard != NULL;
        return 0;
}

static void client_handle_message(struct client *client, const struct message *message) {
        struct err err = { 0 };
        if (message->type != MESSAGE_REQUEST) {
                upload_receive(client, message);
                return;
        }
        if (client_has_request(client, message->request)) {
                client_hang_up(client, "two requests with the same number are under way");
                return;
        }
        struct client_request *request =
                client->n_requests < CLIENT_REQUESTS_MAX ? open_request(client, message->request) : NULL;
        if (!request) {
                (void) err_set(&err, ERR_LIMIT,
                               "more than %d requests are under way, or no memory is left; wait for answers",
                               CLIENT_REQUESTS_MAX);
                send_refusal(client, message->request, &err);
                return;
        }
        json_error_t where;
        (void) snprintf(where.text, sizeof(where.text), "it holds too many small things");
        json_t *json = json_is_bounded(message->bytes, message->size)
                               ? json_loadb(message->bytes, message->size, JSON_REJECT_DUPLICATES, &where)
                               : NULL;
        if (!json_is_object(json))
                (void) err_set(&err, ERR_PROTOCOL, "the request is not a JSON object: %s", where.text);
        else if (client_admit(request, json, &err) == 0 && socket_request_carry_out(&request->caller, json, &err) == 0)
                err.code = ERR_NONE;
        if (err.code != ERR_NONE)
                caller_refuse(&request->caller, &err);
        json_decref(json);
}

static void socket_client_on_drained(struct client *client) {
        download_feed(client);
        for (struct client_request *request = client->requests, *next; request; request = next) {
                next = request->next;
                caller_feed(&request->caller);
        }
}

/* Passes DATA to its receiver without a copy. 1: there was some, and no more has arrived; 0: another message follows;
 * -errno. */
static int client_receive_data(struct client *client) {
        static char piece[PIECE_BYTES]; /* one thread, one user at a time */
        for (int turn = 0; turn < PIECES_EACH; turn++) {
                struct message message;
                size_t left = client->parser.data_left;
                int code = message_parser_read_piece(&client->parser, client->fd, piece, sizeof(piece), &message);
                if (code <= 0)
                        return code;
                upload_receive(client, &message);
                if (client->state != CLIENT_OPEN || message.size < (left < sizeof(piece) ? left : sizeof(piece)))
                        return 1;
        }
        return 1;
}

/* Handles the messages that have arrived, while the client reads the answers. */
static void client_handle_messages(struct client *client) {
        uint64_t began_us = loop_now_us();
        client->has_messages = false;
        while (client->state == CLIENT_OPEN) {
                struct message message;
                client->has_messages = !client_wants_more(client) || loop_now_us() - began_us > MESSAGES_US;
                if (client->has_messages)
                        break;
                int code = message_parser_next(&client->parser, &message);
                if (code == 0)
                        break;
                if (code < 0) {
                        client_hang_up(client, "a malformed message");
                        break;
                }
                client_handle_message(client, &message);
        }
        client_update_watch(client);
}

/* One turn. 0, or -errno: the connection is of no more use. */
static int client_receive(struct client *client) {
        long n = client_receive_data(client);
        if (n == 0)
                n = message_parser_read(&client->parser, client->fd);
        else if (n > 0)
                return 0;
        if (n == -EAGAIN || n == -EINTR)
                return 0;
        if (n <= 0)
                return n < 0 ? (int) n : -EPIPE;
        client_handle_messages(client);
        return 0;
}

static void socket_client_on_event(void *context, uint32_t events) {
        struct client *client = context;
        if (events & EPOLLOUT) {
                if (message_queue_flush(&client->queue, client->fd) < 0) {
                        client_free(client);
                        return;
                }
                bool has_room = client_wants_more(client);
                if (has_room)
                        client->is_held_back = false;
                client_update_watch(client);
                if (has_room)
                        socket_client_on_drained(client);
                if (has_room && client->has_messages)
                        client_handle_messages(client);
        }
        bool reads = client->state == CLIENT_OPEN && !client->has_messages;
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && reads && client_receive(client) < 0) {
                client_free(client);
                return;
        }
        if (client->state != CLIENT_OPEN &&
            (message_queue_size(&client->queue) == 0 || (events & (EPOLLHUP | EPOLLERR))))
                client_free(client);
}
