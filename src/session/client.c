#include "session/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "session/daemon.h"
#include "session/download.h"
#include "session/operation.h"
#include "session/session.h"
#include "session/spill.h"
#include "session/upload.h"

static void on_event(void *context, uint32_t events);

int client_accept(struct daemon *daemon, int fd, struct err *err) {
        _cleanup_fd_ int owned = fd;
        struct client *client = calloc(1, sizeof(*client));
        if (!client)
                return err_set(err, ERR_SYSTEM, "out of memory");
        client->daemon = daemon;
        client->fd = fd;
        client->parser = message_parser_make(MESSAGE_FROM_CLIENT);
        client->queue = message_queue_make(CLIENT_QUEUE_MAX);
        client->watch = loop_watch(daemon->loop, fd, EPOLLIN, on_event, client);
        if (!client->watch) {
                free(client);
                return err_set(err, ERR_SYSTEM, "out of memory");
        }
        (void) take_fd(&owned);
        client->next = daemon->clients;
        daemon->clients = client;
        daemon->n_clients++;
        return 0;
}

/* True when one of the client's requests that wait for this run wants it to end with the client. */
static bool forget_run(struct client *client, struct run *run) {
        bool cancel = false;
        for (struct subscription *s = run->subscriptions; s; s = s->next)
                if (s->client == client) {
                        s->client = NULL;
                        cancel |= s->cancel_on_disconnect;
                }
        return cancel;
}

/* Runs go on without it, unless it asked otherwise. */
static void forget_client(struct client *client) {
        for (struct session *session = client->daemon->sessions, *next; session; session = next) {
                next = session->next;
                if (session->asker && session->asker->client == client)
                        session->asker->client = NULL;
                for (struct run *run = session->runs, *after; run; run = after) {
                        after = run->next;
                        if (forget_run(client, run) && session_cancel(session, run))
                                break; /* and the session is gone, too */
                }
        }
}

void client_free(struct client *client) {
        struct daemon *daemon = client->daemon;
        for (struct client **at = &daemon->clients; *at; at = &(*at)->next) {
                if (*at == client) {
                        *at = client->next;
                        daemon->n_clients--;
                        break;
                }
        }
        forget_client(client);
        download_free_all(client);
        spill_free_all(client);
        while (client->uploads)
                upload_free(client, client->uploads);
        loop_unwatch(&client->watch);
        fd_close(&client->fd);
        message_parser_release(&client->parser);
        message_queue_release(&client->queue);
        free(client);
}

/* ---- requests under way ---- */

static bool is_open(const struct client *client, uint16_t request) {
        for (size_t i = 0; i < client->n_open; i++)
                if (client->open[i] == request)
                        return true;
        return false;
}

static void close_request(struct client *client, uint16_t request) {
        for (size_t i = 0; i < client->n_open; i++)
                if (client->open[i] == request) {
                        client->open[i] = client->open[--client->n_open];
                        return;
                }
}

/* ---- sending ---- */

static void settle(struct client *client) {
        bool waiting = message_queue_size(&client->queue) > 0;
        (void) loop_watch_change(client->watch, (client->closing ? 0 : EPOLLIN) | (waiting ? EPOLLOUT : 0));
}

void client_send(struct client *client, enum message_type type, uint16_t request, const void *bytes, size_t size) {
        if (client->closing && type != MESSAGE_ANSWER)
                return;
        if (type == MESSAGE_ANSWER)
                close_request(client, request);
        if (message_queue_put(&client->queue, type, request, bytes, size) < 0 ||
            message_queue_flush(&client->queue, client->fd) < 0)
                client->closing = true; /* it is gone, or owes us more reading than is fair */
        settle(client);
}

void client_send_output(struct client *client, bool is_error, uint16_t request, uint32_t number, const void *bytes,
                        size_t size) {
        if (message_queue_put_output(&client->queue, is_error ? MESSAGE_ERR : MESSAGE_OUT, request, number, bytes,
                                     size) < 0 ||
            message_queue_flush(&client->queue, client->fd) < 0)
                client->closing = true;
        settle(client);
}

bool client_wants_more(const struct client *client) {
        return !client->closing && message_queue_size(&client->queue) < CLIENT_STREAM_HIGH;
}

void client_answer(struct client *client, uint16_t request, json_t *answer) {
        json_object_set_new(answer, "ok", json_true());
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);
        json_decref(answer);
        size_t size = text ? strlen(text) : 0;
        if (!text || size > message_payload_max(MESSAGE_ANSWER)) {
                struct err err;
                (void) err_set(&err, ERR_LIMIT, "the result is larger than %zu bytes; save it to a file instead",
                               message_payload_max(MESSAGE_ANSWER));
                client_refuse(client, request, &err);
                return;
        }
        client_send(client, MESSAGE_ANSWER, request, text, size);
}

void client_refuse(struct client *client, uint16_t request, const struct err *err) {
        json_t *answer = json_pack("{s:b, s:{s:s, s:s}}", "ok", 0, "error", "code", err_code_name(err->code), "message",
                                   err->message);
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);
        json_decref(answer);
        if (text)
                client_send(client, MESSAGE_ANSWER, request, text, strlen(text));
}

/* ---- receiving ---- */

/* Says what was wrong and reads nothing more. */
static void hang_up(struct client *client, const char *why) {
        struct err err;
        (void) err_set(&err, ERR_PROTOCOL, "%s: the connection is closed", why);
        client_refuse(client, 0, &err);
        client->closing = true;
        settle(client);
}

static void handle_message(struct client *client, const struct message *message) {
        struct err err = { 0 };
        if (message->type != MESSAGE_REQUEST) {
                upload_receive(client, message);
                return;
        }
        if (is_open(client, message->request)) {
                hang_up(client, "two requests with the same number are under way");
                return;
        }
        if (client->n_open == CLIENT_REQUESTS_MAX) {
                (void) err_set(&err, ERR_LIMIT, "more than %d requests are under way; wait for answers",
                               CLIENT_REQUESTS_MAX);
                client_refuse(client, message->request, &err);
                return;
        }
        client->open[client->n_open++] = message->request;
        json_error_t where;
        json_t *request = json_loadb(message->bytes, message->size, JSON_REJECT_DUPLICATES, &where);
        if (!json_is_object(request))
                (void) err_set(&err, ERR_PROTOCOL, "the request is not a JSON object: %s", where.text);
        else if (operation_run(client, message->request, request, &err) == 0)
                err.code = ERR_NONE;
        if (err.code != ERR_NONE)
                client_refuse(client, message->request, &err);
        json_decref(request);
}

static void on_drained(struct client *client) {
        spill_feed(client);
        download_feed(client);
        for (struct session *session = client->daemon->sessions; session; session = session->next)
                if (session->runs && session->runs->started)
                        for (struct subscription *s = session->runs->subscriptions; s; s = s->next)
                                if (s->client == client) {
                                        run_feed(session->runs);
                                        break;
                                }
}

static void on_event(void *context, uint32_t events) {
        struct client *client = context;
        if (events & EPOLLOUT) {
                if (message_queue_flush(&client->queue, client->fd) < 0) {
                        client_free(client);
                        return;
                }
                settle(client);
                if (client_wants_more(client))
                        on_drained(client);
        }
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !client->closing) {
                long n = message_parser_read(&client->parser, client->fd);
                if (n == -EAGAIN || n == -EINTR)
                        return;
                if (n <= 0) {
                        client_free(client);
                        return;
                }
                struct message message;
                int code;
                while (!client->closing && (code = message_parser_next(&client->parser, &message)) != 0) {
                        if (code < 0) {
                                hang_up(client, "a malformed message");
                                break;
                        }
                        handle_message(client, &message);
                }
        }
        if (client->closing && (message_queue_size(&client->queue) == 0 || (events & (EPOLLHUP | EPOLLERR))))
                client_free(client);
}
