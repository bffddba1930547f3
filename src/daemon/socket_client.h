/* A client of the daemon's socket: requests in, messages out. What waits to be sent is bounded; a client that does not
 * read gets its output later, from the journal, and never makes the daemon grow. */
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
        CLIENT_SOCKET_BYTES = 1 << 20,  /* that the system holds for a client, beside the queue */
        CLIENT_REQUESTS_MAX = 1024,
};

/* One request that has no ANSWER yet. */
struct client_request {
        struct caller caller;
        struct client_request *next;
        struct client *client;
        uint16_t number;
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
        bool closing;           /* after the queue is flushed */
        bool is_held_back;      /* the queue was full: streams may wait for room */
};

/* Takes the descriptor. */
int client_accept(struct daemon *daemon, int fd, struct err *err);
void client_free(struct client *client);

/* The request behind a caller; NULL: it came another way, which has no DATA. */
struct client_request *client_request_of(struct caller *caller);

void client_send(struct client *client, enum message_type type, uint16_t request, const void *bytes, size_t size);

/* Room for more output of a stream? */
bool client_wants_more(const struct client *client);
