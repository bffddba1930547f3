#include "client/daemon_client.h"

#include <errno.h>
#include <poll.h>
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
                        "no daemon is running (there is no socket %s); start one with: glovebox serve --background "
                        "(sessions come back with it)",
                        path);
        if (code == ECONNREFUSED && there && !S_ISSOCK(status.st_mode))
                return err_set(err, ERR_EXISTS,
                               "%s is not a socket; move it away, or choose another path with --socket", path);
        if (code == ECONNREFUSED)
                return err_set(err, ERR_GONE,
                               "no daemon is running (the socket %s is left over from one that has ended); start one "
                               "with: glovebox serve --background (sessions come back with it)",
                               path);
        if ((code == EACCES || code == EPERM) && there)
                return err_set(
                        err, ERR_PERMISSION,
                        "the daemon at %s belongs to user %u; become that user, or start your own with: glovebox "
                        "serve --background",
                        path, (unsigned) status.st_uid);
        if (code == EACCES || code == EPERM)
                return err_set(err, ERR_PERMISSION,
                               "the directory of the socket %s is closed to this user; unset XDG_RUNTIME_DIR or "
                               "GLOVEBOX_DATA_DIR if one of them names it, or choose another path with --socket",
                               path);
        return err_sys(err, code, "connecting to the daemon at %s", path);
}

/* Requests carry code and data of this user: the peer must be the same user. */
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
        *ret_client = (struct daemon_client) { .fd = take_fd(&fd),
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

struct call {
        struct daemon_client *client;
        const struct daemon_request *request;
        uint16_t number;
        size_t follows_at;
        bool follows_over; /* END was put, or there is nothing to put */
        bool is_shut;      /* the daemon reads no more; messages that it sent before still come */
        json_t *answer;
        struct err *err;
};

static int daemon_client_put(struct daemon_client *client, enum message_type type, uint16_t number, const void *bytes,
                             size_t size, struct err *err) {
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

/* Keeps the queue filled with the DATA of the request, and holds little of it. */
static int put_follows(struct call *call) {
        const struct daemon_request *request = call->request;
        struct daemon_client *client = call->client;
        while (request->follows && !call->follows_over && message_queue_size(&client->queue) < QUEUE_FULL) {
                size_t left = request->follows_size - call->follows_at;
                size_t step = left < QUEUE_FULL ? left : QUEUE_FULL;
                const char *at = request->follows + call->follows_at;
                if (step > 0 && daemon_client_put(client, MESSAGE_DATA, call->number, at, step, call->err) < 0)
                        return -1;
                call->follows_at += step;
                if (call->follows_at < request->follows_size)
                        continue;
                call->follows_over = true;
                if (daemon_client_put(client, MESSAGE_END, call->number, NULL, 0, call->err) < 0)
                        return -1;
        }
        return 0;
}

static int put_input(struct call *call) {
        char bytes[INPUT_STEP];
        ssize_t n = read(call->request->input_fd, bytes, sizeof(bytes));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n > 0)
                return daemon_client_put(call->client, MESSAGE_DATA, call->number, bytes, (size_t) n, call->err);
        call->follows_over = true; /* unreadable input is empty input */
        return daemon_client_put(call->client, MESSAGE_END, call->number, NULL, 0, call->err);
}

/* If the daemon no longer reads, its answer has the reason. */
static void daemon_client_flush(struct call *call) {
        if (call->is_shut || message_queue_flush(&call->client->queue, call->client->fd) >= 0)
                return;
        call->is_shut = call->follows_over = true;
        message_queue_release(&call->client->queue);
}

static int protocol_error(const struct call *call) {
        return err_set(call->err, ERR_PROTOCOL,
                       "the program at %s does not answer like Glovebox's daemon; restart it with \"glovebox stop\" "
                       "and \"glovebox serve --background\"",
                       call->client->path);
}

static enum err_code code_of_name(const char *name) {
        for (int code = ERR_NONE + 1; name && code < ERR_CODES; code++)
                if (strcmp(err_code_name((enum err_code) code), name) == 0)
                        return (enum err_code) code;
        return ERR_SYSTEM;
}

/* Takes `answer`. */
static int judge_answer(struct call *call, json_t *answer) {
        if (json_is_true(json_object_get(answer, "ok"))) {
                call->answer = answer;
                return 0;
        }
        json_t *error = json_object_get(answer, "error");
        const char *message = json_string_value(json_object_get(error, "message"));
        if (message)
                (void) err_set(call->err, code_of_name(json_string_value(json_object_get(error, "code"))), "%s",
                               message);
        else
                (void) protocol_error(call);
        json_decref(answer);
        return -1;
}

static int take_json(struct call *call, const struct message *message) {
        json_t *json = json_loadb(message->bytes, message->size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (!json_is_object(json)) {
                json_decref(json);
                return protocol_error(call);
        }
        if (message->type == MESSAGE_ANSWER)
                return judge_answer(call, json);
        const struct daemon_calls *calls = &call->request->calls;
        int code = calls->event ? calls->event(calls->context, json) : 0;
        json_decref(json);
        return code ? DAEMON_CALL_LEFT : 0;
}

static int daemon_client_take_message(struct call *call, const struct message *message) {
        const struct daemon_calls *calls = &call->request->calls;
        const char *bytes;
        size_t size;
        uint32_t number;
        if (message->request != call->number && message->request != 0)
                return 0; /* the answer to something posted */
        switch (message->type) {
        case MESSAGE_OUT:
        case MESSAGE_ERR:
                if (!message_get_output(message, &number, &bytes, &size))
                        return protocol_error(call);
                return calls->output && calls->output(calls->context, message->type, bytes, size) ? DAEMON_CALL_LEFT
                                                                                                  : 0;
        case MESSAGE_DATA:
                return calls->data && calls->data(calls->context, message->bytes, message->size) ? DAEMON_CALL_LEFT : 0;
        case MESSAGE_EVENT:
        case MESSAGE_ANSWER:
                return take_json(call, message);
        default:
                return 0;
        }
}

/* Handles all messages that have arrived. 0: continue; DAEMON_CALL_LEFT; -1. */
static int daemon_client_take_messages(struct call *call) {
        struct message message;
        while (!call->answer) {
                int code = message_parser_next(&call->client->parser, &message);
                if (code <= 0)
                        return code < 0 ? protocol_error(call) : 0;
                code = daemon_client_take_message(call, &message);
                if (code != 0)
                        return code;
        }
        return 0;
}

static int daemon_client_receive(struct call *call) {
        long n = message_parser_read(&call->client->parser, call->client->fd);
        if (n == -EAGAIN || n == -EINTR)
                return 0;
        if (n > 0)
                return daemon_client_take_messages(call);
        return err_set(
                call->err, ERR_GONE,
                "the daemon at %s ended before it answered; \"glovebox status\" shows whether it runs again, and what "
                "a session printed is kept: glovebox session log NAME",
                call->client->path);
}

enum { WATCH_DAEMON, WATCH_WAKE, WATCH_INPUT, WATCHES };

static void daemon_client_watch_all(const struct call *call, struct pollfd watched[static WATCHES]) {
        const struct daemon_request *request = call->request;
        const struct daemon_client *client = call->client;
        bool wants_input =
                request->with_input && !call->follows_over && message_queue_size(&client->queue) < QUEUE_FULL;
        /* An empty queue may have been emptied faster than it was filled. */
        bool has_more = message_queue_size(&client->queue) > 0 || (request->follows && !call->follows_over);
        watched[WATCH_DAEMON] =
                (struct pollfd) { .fd = client->fd, .events = (short) (POLLIN | (has_more ? POLLOUT : 0)) };
        watched[WATCH_WAKE] = (struct pollfd) { .fd = request->calls.wake ? request->wake_fd : -1, .events = POLLIN };
        watched[WATCH_INPUT] = (struct pollfd) { .fd = wants_input ? request->input_fd : -1, .events = POLLIN };
}

static int wait_turn(struct call *call, uint64_t deadline_ms) {
        const struct daemon_request *request = call->request;
        struct pollfd watched[WATCHES];
        daemon_client_watch_all(call, watched);
        uint64_t now = loop_now_ms();
        int timeout = deadline_ms == 0 ? -1 : deadline_ms > now ? (int) (deadline_ms - now) : 0;
        int n = poll(watched, ELEMENTS(watched), timeout);
        if (n < 0 && errno != EINTR)
                return err_sys(call->err, errno, "waiting for the daemon");
        if (n == 0)
                return err_set(
                        call->err, ERR_TIMEOUT,
                        "the daemon at %s does not answer; it may be stopped or overloaded: look at its log, or end "
                        "it and start it again",
                        call->client->path);
        if (n < 0)
                return 0;
        if (watched[WATCH_WAKE].revents && request->calls.wake(request->calls.context))
                return DAEMON_CALL_LEFT;
        if (watched[WATCH_INPUT].revents && put_input(call) < 0)
                return -1;
        return watched[WATCH_DAEMON].revents ? daemon_client_receive(call) : 0;
}

int daemon_client_call(struct daemon_client *client, const struct daemon_request *request, json_t **ret_answer,
                       struct err *err) {
        struct call call = { .client = client, .request = request, .err = err };
        call.follows_over = !request->follows && !request->with_input;
        if (put_request(client, request->body, &call.number, err) < 0)
                return -1;
        uint64_t deadline_ms = request->timeout_ms ? loop_now_ms() + request->timeout_ms : 0;
        int code = 0;
        while (code == 0 && !call.answer) {
                if (put_follows(&call) < 0)
                        return -1;
                daemon_client_flush(&call);
                code = wait_turn(&call, deadline_ms);
        }
        if (code != 0)
                return code;
        *ret_answer = call.answer;
        return DAEMON_CALL_ANSWERED;
}

int daemon_client_request(struct daemon_client *client, json_t *body, json_t **ret_answer, struct err *err) {
        if (!body)
                return err_set(err, ERR_USAGE, "the session's name is not valid UTF-8");
        const struct daemon_request request = { .body = body };
        int code = daemon_client_call(client, &request, ret_answer, err);
        json_decref(body);
        return code;
}

int daemon_client_ask(struct daemon_client *client, const char *operation, const char *session, json_t **ret_answer,
                      struct err *err) {
        json_t *body = json_pack("{s:s, s:s*}", "op", operation, "session", session);
        return daemon_client_request(client, body, ret_answer, err);
}

int daemon_client_pidfd(const struct daemon_client *client) {
        struct ucred peer;
        socklen_t size = sizeof(peer);
        if (getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return -errno;
        int fd = (int) syscall(SYS_pidfd_open, peer.pid, 0);
        return fd < 0 ? -errno : fd;
}
