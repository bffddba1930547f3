/* A job: something that may block (a disk, another program), done by a child of the daemon while that goes on. What
 * it has to say comes back when it has ended, all at once. It dies with the daemon. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/share.h"

enum { HELPER_JOB_FDS_MAX = 4, HELPER_JOB_ANSWER_MAX = 16 << 20, HELPER_JOB_QUEUE_ROOM = 48 };

struct helper_job;

struct helper_job_order {
        int fds[HELPER_JOB_FDS_MAX]; /* what it takes along, borrowed */
        size_t n_fds;
        struct share_table *shares; /* of which it takes one of this row, for this key; NULL: it counts for no key */
        size_t share;
        const char *key;
        uint64_t timeout_ms; /* after which it is killed; 0: it has all the time */
        /* Work for a moment, caused by a stranger: few of these are done at a time, and one of each queue; the others
         * wait for their turn, queue by queue. NULL: it is begun at once. */
        const char *queue;
        /* In the child, which has these descriptors and the standard ones, of which the output is `out_fd`, for what
         * there is to say; it may execute something. Whatever the daemon had in memory can be read. 0, or -1 when it
         * failed: then it has said nothing. */
        int (*work)(const int *fds, int out_fd, void *context);
        /* What it said; NULL when it failed or was killed. The job is over then: its owner forgets it there. */
        void (*done)(void *context, const char *bytes, size_t size);
        void *context;
};

/* The name of the queue for whatever looks at this directory. */
void helper_job_name_queue(int fd, char ret_queue[static HELPER_JOB_QUEUE_ROOM]);

/* NULL when there are no processes or descriptors for it, or dozens are under way already, or as many of its key as may
 * be (ERR_LIMIT). */
struct helper_job *helper_job_start(struct loop *loop, const struct helper_job_order *order, struct err *err);

/* Ends it; `done` is not called. It keeps its share until it is gone; this does not wait. NULL inside is fine. */
void helper_job_drop(struct helper_job **job);
