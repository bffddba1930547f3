/* A file on its way to a client: read as fast as the client takes it, never held in memory whole. */
#pragma once

#include <stdint.h>

struct client;

struct download {
        struct download *next;
        uint16_t request;
        int fd;
        uint64_t at, end;
};

/* Sends [offset, offset + size) as DATA…, END, ANSWER {size}. Takes the descriptor. -1: out of memory. */
int download_begin(struct client *client, uint16_t request, int fd, uint64_t offset, uint64_t size);

/* Goes on as long as the client's queue has room. */
void download_feed(struct client *client);

void download_free_all(struct client *client);
