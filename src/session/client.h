/* A client of the daemon's socket: requests in, messages out. What waits to be sent is bounded; a client that does not
 * read gets its output later, from the journal, and never makes the daemon grow. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/message.h"

struct daemon;
struct download;
struct spill;
struct upload;

enum { CLIENT_QUEUE_MAX = 64 << 20, CLIENT_STREAM_HIGH = 1 << 20, CLIENT_REQUESTS_MAX = 1024 };

struct client {
        struct client *next;
        struct daemon *daemon;
        int fd;
        struct loop_watch *watch;
        struct message_parser parser;
        struct message_queue queue;
        struct upload *uploads; /* requests that still receive DATA */
        struct download *downloads;
        struct spill *spills;   /* the rest of streams whose runs are over */
        uint16_t open[CLIENT_REQUESTS_MAX]; /* numbers of requests that have no ANSWER yet */
        size_t n_open;
        bool closing;           /* after the queue is flushed */
};

/* Takes the descriptor. */
int client_accept(struct daemon *daemon, int fd, struct err *err);
void client_free(struct client *client);

/* ANSWER {"ok": true, …}: takes the reference. */
void client_answer(struct client *client, uint16_t request, json_t *answer);
void client_refuse(struct client *client, uint16_t request, const struct err *err);
void client_send(struct client *client, enum message_type type, uint16_t request, const void *bytes, size_t size);
void client_send_output(struct client *client, bool is_error, uint16_t request, uint32_t number, const void *bytes,
                        size_t size);

/* Room for more output of a stream? */
bool client_wants_more(const struct client *client);
