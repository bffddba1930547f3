/* What a slow client has not read yet when its run is over: whole messages in a file without a name, so that neither
 * the daemon's memory nor the session waits for it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "wire/message.h"

struct client;

struct spill {
        struct spill *next;
        int fd;
        uint64_t at, end; /* what is between was not sent yet */
};

/* A new one, not yet the client's. NULL: no memory, or no room on the disk. */
struct spill *spill_make(const char *dir);
void spill_free(struct spill *spill); /* NULL is fine */

/* Appends a message; `prefix` comes before its payload. -errno. */
int spill_put(struct spill *spill, enum message_type type, uint16_t request, const void *prefix, size_t prefix_size,
              const void *bytes, size_t size);

/* Gives it to the client, which sends it as fast as it is read. A client that lets too much pile up is closed. */
void spill_give(struct client *client, struct spill *spill);

/* Sends what the client takes now. */
void spill_feed(struct client *client);
void spill_free_all(struct client *client);
