/* The descriptors for which one iteration of the agent waits. */
#pragma once

#include <poll.h>
#include <stddef.h>

#include "bounds.h"

struct polls {
        struct pollfd fds[POLLS_MAX + 1];
        size_t n;
};

/* Returns the index of the entry, for reading its events; never 0, which means "was not added". */
static inline size_t polls_add(struct polls *polls, int fd, short events) {
        if (polls->n == 0)
                polls->fds[polls->n++] = (struct pollfd) { .fd = -1 };
        if (polls->n == POLLS_MAX + 1)
                return 0;
        polls->fds[polls->n] = (struct pollfd) { .fd = fd, .events = events };
        return polls->n++;
}

static inline short polls_happened(const struct polls *polls, size_t place) {
        return place && place < polls->n ? polls->fds[place].revents : (short) 0;
}
