/* A client of the daemon's socket: requests in, messages out. What waits to be sent is bounded; a client that does not
 * read gets its output later, from the journal, and its large answers from a file, so the daemon's memory does not
 * grow. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "session/caller.h"
#include "wire/message.h"

struct daemon;
struct download;
struct upload;

enum {
        CLIENT_QUEUE_MAX = 16 << 20,
        CLIENT_STREAM_HIGH = 256 << 10, /* past it a stream waits */
        CLIENT_CHANNEL_HIGH = 32 << 10, /* the same of a channel, of which a key may have hundreds */
        CLIENT_ANSWER_SMALL = 8 << 10,  /* small: there may be one for each channel */
        CLIENT_SOCKET_BYTES = 1 << 20,  /* that the system holds for a client, beside the queue */
        CLIENT_REQUESTS_MAX = 1024,
};

/* One request that has no ANSWER yet. */
struct client_request {
        struct caller caller;
        struct client_request *next;
        struct client *client;
        uint16_t number;
        bool is_admitted, is_run; /* by a guard */
        bool wants_start;         /* the id of its run, also when it does not stream */
        bool is_left;             /* its connection is gone */
};

/* Checks between a connection of an API key (api/channel.h) and the operations: the layer above has the keys, their
 * quotas and rights. */
struct client_guard {
        /* Checks whether this request is allowed. With *ret_is_run it counts as a run until it is settled. */
        int (*admit)(void *context, json_t *json, bool *ret_is_run, struct err *err);
        void (*settled)(void *context, bool is_run); /* an admitted request has ended */
        void (*gone)(void *context);                 /* the connection has ended, and all requests of it */
};

/* Whose connection it is. */
struct client_holder {
        const char *owner; /* a key's name */
        const char *from;  /* its address */
        const struct client_guard *guard;
        void *context;
};

/* Only client_set_state writes it, and it only grows. */
enum client_state {
        CLIENT_OPEN,
        CLIENT_CLOSING, /* nothing more is read; it is closed when the queue is flushed */
        CLIENT_GONE,    /* it has disconnected; its runs go on, and are counted until they end */
};

struct client {
        struct client *next;
        struct daemon *daemon;
        int fd;
        struct loop_watch *watch;
        struct message_parser parser;
        struct message_queue queue;
        struct upload *uploads; /* requests that still receive DATA */
        struct download *downloads;
        struct client_request *requests; /* newest first */
        size_t n_requests;
        enum client_state state;
        bool is_held_back;      /* the queue was full: streams may wait for room */
        bool is_not_read;       /* see client_hold */
        bool has_messages;      /* received and not handled yet */
        const struct client_guard *guard; /* NULL: the operator's own connection */
        void *guard_context;
        char owner[65], from[64];
};

/* Takes the descriptor. `holder` NULL: the operator, on the UNIX socket. */
int client_accept(struct daemon *daemon, int fd, const struct client_holder *holder, struct err *err);

/* At the end of the daemon: all that have a guard, or all that have none. */
void client_free_all(struct daemon *daemon, bool is_guarded);

/* The request of a caller; NULL: it came through another front end, which has no DATA. */
struct client_request *client_request_of(struct caller *caller);

void client_send(struct client *client, enum message_type type, uint16_t request, const void *bytes, size_t size);

/* Pauses reading from the client, because the destination of its data is slower. */
void client_hold(struct client *client, bool is_held);

/* True if there is room for more output of a stream. */
bool client_wants_more(const struct client *client);

/* Reading continues in the loop's next turn. */
void client_feed_later(struct client *client);
