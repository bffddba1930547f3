/* An errand: something that waits for a disk, done by a child of the daemon's while the daemon goes on. */
#pragma once

#include <stddef.h>

#include "base/loop.h"

enum { ERRAND_FDS_MAX = 2, ERRAND_ANSWER_MAX = 16 << 20 };

struct errand;

struct errand_order {
        int fds[ERRAND_FDS_MAX]; /* what it takes along, borrowed */
        size_t n_fds;
        /* In the child, which has these descriptors, the standard ones and `out_fd` for what there is to say. Whatever
         * the daemon had in memory can be read. 0, or -1 when it failed: then it has said nothing. */
        int (*work)(const int *fds, int out_fd, void *context);
        /* What it said; NULL when it failed. The errand is over then: its owner forgets it there. */
        void (*done)(void *context, const char *bytes, size_t size);
        void *context;
};

/* NULL when there are no processes or descriptors for it, or dozens are under way already. */
struct errand *errand_start(struct loop *loop, const struct errand_order *order);

/* Ends it; `done` is not called. NULL inside is fine. */
void errand_drop(struct errand **errand);
