/* A client of the daemon: a connection, requests, and what the daemon sends during them. The connection is nonblocking.
 * A call runs a small loop over the socket, the caller's input and the caller's signals until the answer has come. One
 * call at a time; daemon_client_post sends another request beside it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "client/socket_place.h"
#include "wire/message.h"

struct daemon_client {
        int fd;
        uint16_t last_request;
        struct message_parser parser;
        struct message_queue queue;
        char path[SOCKET_PATH_MAX];
};

#define DAEMON_CLIENT_NONE ((struct daemon_client) { .fd = -1 })

/* Connects. ERR_NOT_FOUND: no socket; ERR_GONE: a socket without a listener; ERR_PERMISSION: another user owns it.
 */
int daemon_client_connect(const char *path, struct daemon_client *ret_client, struct err *err);

enum daemon_open_flags {
        DAEMON_START = 1, /* start one when none is running */
        DAEMON_ANY_VERSION = 2, /* accept a daemon of another version */
};

/* Connects, starts the daemon if requested, and checks with a ping that it answers and has the same version. */
int daemon_client_open(const struct socket_place *place, unsigned flags, struct daemon_client *ret_client,
                       struct err *err);
void daemon_client_close(struct daemon_client *client);

/* Each may be NULL. A non-zero result ends the call, which returns DAEMON_CALL_LEFT; the connection can then only be
 * closed. */
struct daemon_calls {
        int (*output)(void *context, enum message_type type, const char *bytes, size_t size); /* OUT or ERR */
        int (*event)(void *context, const json_t *event);
        int (*data)(void *context, const char *bytes, size_t size);
        int (*wake)(void *context); /* wake_fd is readable: the callee empties it */
        void *context;
};

struct daemon_request {
        json_t *body; /* borrowed */
        const char *follows; /* sent along as DATA … END, or NULL */
        size_t follows_size;
        bool with_input; /* input_fd goes along as DATA … END */
        int input_fd; /* borrowed, used only with with_input */
        int wake_fd; /* borrowed, used only with calls.wake */
        uint64_t timeout_ms; /* of the whole call; 0: none */
        struct daemon_calls calls;
};

enum { DAEMON_CALL_ANSWERED, DAEMON_CALL_LEFT };

/* DAEMON_CALL_ANSWERED and a new reference to the answer, DAEMON_CALL_LEFT, or -1 with err: the daemon's own error, or
 * ERR_GONE if it disconnected. */
int daemon_client_call(struct daemon_client *client, const struct daemon_request *request, json_t **ret_answer,
                       struct err *err);

/* Sends a request without waiting for its answer, during the current call or the next one. */
int daemon_client_post(struct daemon_client *client, json_t *body, struct err *err);

/* A request that has an operation and at most a session's name (or NULL). */
int daemon_client_ask(struct daemon_client *client, const char *operation, const char *session, json_t **ret_answer,
                      struct err *err);

/* A pidfd of the daemon, which becomes readable when it has ended; or -errno. */
int daemon_client_pidfd(const struct daemon_client *client);
