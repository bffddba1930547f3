#include "client/daemon_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/memory.h"
#include "client/daemon_start.h"

enum {
        QUEUE_MAX = 4 << 20,
        QUEUE_FULL = 512 << 10, /* input is not read while this much waits */
        PING_TIMEOUT_MS = 10000,
        INPUT_STEP = 64 << 10,
};

/* ---- the connection ---- */

void daemon_client_close(struct daemon_client *client) {
        fd_close(&client->fd);
        message_parser_release(&client->parser);
        message_queue_release(&client->queue);
}

static int explain_connect(const char *path, int code, struct err *err) {
        struct stat status;
        bool there = lstat(path, &status) == 0;
        if (code == ENOENT || code == ENOTDIR)
                return err_set(
                        err, ERR_NOT_FOUND,
                        "no daemon is running (there is no socket %s); start one with: glovebox serve --background",
                        path);
        if (code == ECONNREFUSED && there && !S_ISSOCK(status.st_mode))
                return err_set(err, ERR_EXISTS,
                               "%s is not a socket; move it away, or choose another path with --socket", path);
        if (code == ECONNREFUSED)
                return err_set(err, ERR_GONE,
                               "no daemon is running (the socket %s is left over from one that has ended); start one "
                               "with: glovebox serve --background",
                               path);
        if ((code == EACCES || code == EPERM) && there)
                return err_set(
                        err, ERR_PERMISSION,
                        "the daemon at %s belongs to user %u; become that user, or start your own with: glovebox "
                        "serve --background",
                        path, (unsigned) status.st_uid);
        return err_sys(err, code, "connecting to the daemon at %s", path);
}

/* What we send is code and data of this user: nobody else may be at the other end. */
static int check_peer(int fd, const char *path, struct err *err) {
        struct ucred peer;
        socklen_t size = sizeof(peer);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return err_sys(err, errno, "asking who listens at %s", path);
        if (peer.uid != geteuid())
                return err_set(
                        err, ERR_PERMISSION,
                        "the daemon at %s belongs to user %u, who could read what you send; start your own with: "
                        "glovebox serve --background --socket PATH",
                        path, (unsigned) peer.uid);
        return 0;
}

int daemon_client_connect(const char *path, struct daemon_client *ret_client, struct err *err) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        if (strlen(path) >= sizeof(address.sun_path))
                return err_set(err, ERR_USAGE, "the socket's path %.300s is too long; choose a shorter one", path);
        (void) strcpy(address.sun_path, path);
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return err_sys(err, errno, "making a socket");
        while (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                if (errno != EINTR)
                        return explain_connect(path, errno, err);
        if (check_peer(fd, path, err) < 0)
                return -1;
        int code = fd_set_nonblocking(fd);
        if (code < 0)
                return err_sys(err, -code, "the connection to the daemon");
        *ret_client = (struct daemon_client){ .fd = take_fd(&fd),
                                              .parser = message_parser_make(MESSAGE_FROM_DAEMON),
                                              .queue = message_queue_make(QUEUE_MAX) };
        (void) strcpy(ret_client->path, address.sun_path);
        return 0;
}

static int check_version(struct daemon_client *client, struct err *err) {
        json_t *body = json_pack("{s:s}", "op", "ping"), *answer = NULL;
        const struct daemon_request request = { .body = body, .timeout_ms = PING_TIMEOUT_MS };
        int code = daemon_client_call(client, &request, &answer, err);
        json_decref(body);
        if (code < 0)
                return -1;
        const char *version = json_string_value(json_object_get(answer, "version"));
        if (!version || strcmp(version, GLOVEBOX_VERSION) != 0)
                code = err_set(err, ERR_UNSUPPORTED,
                               "the daemon at %s has version %.40s and this command has %s; restart it with \"glovebox "
                               "stop\" and \"glovebox serve --background\" (sessions stay)",
                               client->path, version ? version : "(none)", GLOVEBOX_VERSION);
        json_decref(answer);
        return code;
}

int daemon_client_open(const struct socket_place *place, unsigned flags, struct daemon_client *ret_client,
                       struct err *err) {
        struct err why = { 0 };
        struct daemon_client client = DAEMON_CLIENT_NONE;
        int code = daemon_client_connect(place->address, &client, &why);
        if (code < 0 && (flags & DAEMON_START) && (why.code == ERR_NOT_FOUND || why.code == ERR_GONE)) {
                if (daemon_start(place, err) < 0)
                        return -1;
                code = daemon_client_connect(place->address, &client, &why);
        }
        if (code < 0) {
                if (err)
                        *err = why;
                return -1;
        }
        if (!(flags & DAEMON_ANY_VERSION) && check_version(&client, err) < 0) {
                daemon_client_close(&client);
                return -1;
        }
        *ret_client = client;
        return 0;
}

/* ---- one call ---- */

struct api_request {
        struct daemon_client *client;
        const struct daemon_request *request;
        uint16_t number;
        size_t follows_at;
        bool follows_over; /* END was put, or there is nothing to put */
        bool deaf;         /* the daemon reads no more; what it has said still comes */
        json_t *answer;
        struct err *err;
};

static int daemon_client_put(struct daemon_client *client, enum message_type type, uint16_t number, const void *bytes, size_t size,
               struct err *err) {
        int code = message_queue_put(&client->queue, type, number, bytes, size);
        if (code == -E2BIG)
                return err_set(err, ERR_LIMIT, "the request is larger than %d MiB; put what is large into a file",
                               MESSAGE_REQUEST_MAX >> 20);
        return code < 0 ? err_sys(err, -code, "speaking to the daemon") : 0;
}

static int put_request(struct daemon_client *client, json_t *body, uint16_t *ret_number, struct err *err) {
        _cleanup_free_ char *text = json_dumps(body, JSON_COMPACT);
        if (!text)
                return err_set(err, ERR_SYSTEM, "out of memory");
        *ret_number = ++client->last_request;
        return daemon_client_put(client, MESSAGE_REQUEST, *ret_number, text, strlen(text), err);
}

int daemon_client_post(struct daemon_client *client, json_t *body, struct err *err) {
        uint16_t number;
        return put_request(client, body, &number, err);
}

/* Keeps the queue filled with what follows the request, without ever holding much of it. */
static int put_follows(struct api_request *api_request) {
        const struct daemon_request *request = api_request->request;
        struct daemon_client *client = api_request->client;
        while (request->follows && !api_request->follows_over && message_queue_size(&client->queue) < QUEUE_FULL) {
                size_t left = request->follows_size - api_request->follows_at;
                size_t step = left < QUEUE_FULL ? left : QUEUE_FULL;
                const char *at = request->follows + api_request->follows_at;
                if (step > 0 && daemon_client_put(client, MESSAGE_DATA, api_request->number, at, step, api_request->err) < 0)
                        return -1;
                api_request->follows_at += step;
                if (api_request->follows_at < request->follows_size)
                        continue;
                api_request->follows_over = true;
                if (daemon_client_put(client, MESSAGE_END, api_request->number, NULL, 0, api_request->err) < 0)
                        return -1;
        }
        return 0;
}

static int put_input(struct api_request *api_request) {
        char bytes[INPUT_STEP];
        ssize_t n = read(api_request->request->input_fd, bytes, sizeof(bytes));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n > 0)
                return daemon_client_put(api_request->client, MESSAGE_DATA, api_request->number, bytes, (size_t) n, api_request->err);
        api_request->follows_over = true; /* unreadable input is empty input */
        return daemon_client_put(api_request->client, MESSAGE_END, api_request->number, NULL, 0, api_request->err);
}

/* Once the daemon no longer reads there is nothing to do about it but to hear what it has to say. */
static void daemon_client_flush(struct api_request *api_request) {
        if (api_request->deaf || message_queue_flush(&api_request->client->queue, api_request->client->fd) >= 0)
                return;
        api_request->deaf = api_request->follows_over = true;
        message_queue_release(&api_request->client->queue);
}

static int protocol_error(const struct api_request *api_request) {
        return err_set(
                api_request->err, ERR_PROTOCOL,
                "what listens at %s does not speak as Glovebox's daemon should; restart it with \"glovebox stop\" "
                "and \"glovebox serve --background\"",
                api_request->client->path);
}

static enum err_code code_of_name(const char *name) {
        for (int code = ERR_NONE + 1; name && code < ERR_CODES; code++)
                if (strcmp(err_code_name((enum err_code) code), name) == 0)
                        return (enum err_code) code;
        return ERR_SYSTEM;
}

/* Takes `answer`. */
static int judge_answer(struct api_request *api_request, json_t *answer) {
        if (json_is_true(json_object_get(answer, "ok"))) {
                api_request->answer = answer;
                return 0;
        }
        json_t *error = json_object_get(answer, "error");
        const char *message = json_string_value(json_object_get(error, "message"));
        if (message)
                (void) err_set(api_request->err, code_of_name(json_string_value(json_object_get(error, "code"))), "%s",
                               message);
        else
                (void) protocol_error(api_request);
        json_decref(answer);
        return -1;
}

static int take_json(struct api_request *api_request, const struct message *message) {
        json_t *json = json_loadb(message->bytes, message->size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (!json_is_object(json)) {
                json_decref(json);
                return protocol_error(api_request);
        }
        if (message->type == MESSAGE_ANSWER)
                return judge_answer(api_request, json);
        const struct daemon_calls *calls = &api_request->request->calls;
        int code = calls->event ? calls->event(calls->context, json) : 0;
        json_decref(json);
        return code ? DAEMON_CALL_LEFT : 0;
}

static int take_message(struct api_request *api_request, const struct message *message) {
        const struct daemon_calls *calls = &api_request->request->calls;
        const char *bytes;
        size_t size;
        uint32_t number;
        if (message->request != api_request->number && message->request != 0)
                return 0; /* the answer to something posted */
        switch (message->type) {
        case MESSAGE_OUT:
        case MESSAGE_ERR:
                if (!message_get_output(message, &number, &bytes, &size))
                        return protocol_error(api_request);
                return calls->output && calls->output(calls->context, message->type, bytes, size) ? DAEMON_CALL_LEFT
                                                                                                  : 0;
        case MESSAGE_DATA:
                return calls->data && calls->data(calls->context, message->bytes, message->size) ? DAEMON_CALL_LEFT : 0;
        case MESSAGE_EVENT:
        case MESSAGE_ANSWER:
                return take_json(api_request, message);
        default:
                return 0;
        }
}

/* All messages that are there. 0: on with it; DAEMON_CALL_LEFT; -1. */
static int take_messages(struct api_request *api_request) {
        struct message message;
        while (!api_request->answer) {
                int code = message_parser_next(&api_request->client->parser, &message);
                if (code <= 0)
                        return code < 0 ? protocol_error(api_request) : 0;
                code = take_message(api_request, &message);
                if (code != 0)
                        return code;
        }
        return 0;
}

static int daemon_client_receive(struct api_request *api_request) {
        long n = message_parser_read(&api_request->client->parser, api_request->client->fd);
        if (n == -EAGAIN || n == -EINTR)
                return 0;
        if (n > 0)
                return take_messages(api_request);
        return err_set(
                api_request->err, ERR_GONE,
                "the daemon at %s ended before it answered; \"glovebox status\" tells whether it is back, and what "
                "a session printed is kept: glovebox session log NAME",
                api_request->client->path);
}

static int wait_turn(struct api_request *api_request, uint64_t deadline_ms) {
        const struct daemon_request *request = api_request->request;
        struct daemon_client *client = api_request->client;
        bool wants_input =
                request->with_input && !api_request->follows_over && message_queue_size(&client->queue) < QUEUE_FULL;
        /* An empty queue may have been emptied faster than it was filled. */
        bool has_more = message_queue_size(&client->queue) > 0 || (request->follows && !api_request->follows_over);
        struct pollfd watched[3] = {
                { .fd = client->fd, .events = (short) (POLLIN | (has_more ? POLLOUT : 0)) },
                { .fd = request->calls.wake ? request->wake_fd : -1, .events = POLLIN },
                { .fd = wants_input ? request->input_fd : -1, .events = POLLIN },
        };
        uint64_t now = loop_now_ms();
        int timeout = deadline_ms == 0 ? -1 : deadline_ms > now ? (int) (deadline_ms - now) : 0;
        int n = poll(watched, ELEMENTS(watched), timeout);
        if (n < 0 && errno != EINTR)
                return err_sys(api_request->err, errno, "waiting for the daemon");
        if (n == 0)
                return err_set(
                        api_request->err, ERR_TIMEOUT,
                        "the daemon at %s does not answer; it may be stopped or overloaded: look at its log, or end "
                        "it and start it again",
                        client->path);
        if (n > 0 && watched[1].revents && request->calls.wake(request->calls.context))
                return DAEMON_CALL_LEFT;
        if (n > 0 && watched[2].revents && put_input(api_request) < 0)
                return -1;
        return n > 0 && watched[0].revents ? daemon_client_receive(api_request) : 0;
}

int daemon_client_call(struct daemon_client *client, const struct daemon_request *request, json_t **ret_answer,
                       struct err *err) {
        struct api_request api_request = { .client = client, .request = request, .err = err };
        api_request.follows_over = !request->follows && !request->with_input;
        if (put_request(client, request->body, &api_request.number, err) < 0)
                return -1;
        uint64_t deadline_ms = request->timeout_ms ? loop_now_ms() + request->timeout_ms : 0;
        int code = 0;
        while (code == 0 && !api_request.answer) {
                if (put_follows(&api_request) < 0)
                        return -1;
                daemon_client_flush(&api_request);
                code = wait_turn(&api_request, deadline_ms);
        }
        if (code != 0)
                return code;
        *ret_answer = api_request.answer;
        return DAEMON_CALL_ANSWERED;
}

int daemon_client_ask(struct daemon_client *client, const char *operation, const char *session, json_t **ret_answer,
                      struct err *err) {
        json_t *body = json_pack("{s:s, s:s*}", "op", operation, "session", session);
        if (!body)
                return err_set(err, ERR_USAGE, "the session's name is not text");
        const struct daemon_request request = { .body = body };
        int code = daemon_client_call(client, &request, ret_answer, err);
        json_decref(body);
        return code;
}

int daemon_client_pidfd(const struct daemon_client *client) {
        struct ucred peer;
        socklen_t size = sizeof(peer);
        if (getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return -errno;
        int fd = (int) syscall(SYS_pidfd_open, peer.pid, 0);
        return fd < 0 ? -errno : fd;
}
