/* The input and output of one process whose descriptors the agent made. Nothing here blocks.
 *
 * Output: read from the process only while the host has room for it, so that a process that floods is blocked and the
 * agent's memory stays bounded. Input: bytes that the process does not take yet are queued, up to a bound that the host
 * respects. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "polls.h"

struct stream_output {
        int fd;        /* -1: has ended */
        uint64_t left; /* bytes to be read: unbounded while the process runs, then what it left in the pipe */
        size_t place;
};

struct stream_input {
        int fd;      /* -1: has ended */
        char *queue; /* bytes from start on wait for the process */
        size_t start, size;
        uint64_t taken;
        bool ending; /* to be closed when the queue is empty */
        size_t place;
};

struct streams {
        bool terminal;
        struct stream_input input;
        struct stream_output outputs[2];
        uint64_t sent, acknowledged; /* bytes of OUTPUT */
};

/* No streams at all: the descriptors came with the frame. */
struct streams streams_none(void);

/* Pipes; ret_theirs belong to the caller, to be given to the process and closed. 0 or -errno. */
int streams_open(struct streams *ret_streams, int ret_theirs[static 3]);
void streams_release(struct streams *streams);

/* False: more than STREAM_INPUT_MAX would wait, and nothing was taken. Input for a closed pipe is dropped. */
bool streams_put_input(struct streams *streams, uint32_t id, const char *bytes, size_t size);
void streams_end_input(struct streams *streams, uint32_t id);

void streams_wait(struct streams *streams, struct polls *polls);
void streams_move(struct streams *streams, uint32_t id, const struct polls *polls);

/* The process has ended. Its output is still sent; later output of others to the same pipes is not. */
void streams_limit_output(struct streams *streams);
/* True if all of it was sent. */
bool streams_drain(struct streams *streams, uint32_t id);
