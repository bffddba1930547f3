/* A file that is sent to a client: read as fast as the client takes it, never whole in memory. */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct caller;
struct client;

struct download {
        struct download *next;
        struct caller *caller; /* a client's request */
        int fd;
        uint64_t at, end;
};

/* Sends [offset, offset + size) as DATA…, END, ANSWER {size}. Takes the descriptor. ERR_UNSUPPORTED: the caller's
 * protocol has no DATA. */
int download_begin(struct caller *caller, int fd, uint64_t offset, uint64_t size, struct err *err);

/* Continues while the client's queue has room. */
void download_feed(struct client *client);

void download_free_all(struct client *client);
