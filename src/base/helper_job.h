/* A job is work that may block (on a disk, on another program). A child does it while the daemon goes on; the daemon
 * gets the child's whole answer when the child has ended. The child dies with the daemon. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/share.h"

enum { HELPER_JOB_FDS_MAX = 4, HELPER_JOB_ANSWER_MAX = 16 << 20, HELPER_JOB_QUEUE_ROOM = 48 };

struct helper_job;

struct helper_job_order {
        int fds[HELPER_JOB_FDS_MAX]; /* for the child, borrowed */
        size_t n_fds;
        struct share_table *shares; /* in which it takes one of row `share` for `key`; NULL: it is not counted */
        size_t share;
        const char *key;
        uint64_t timeout_ms; /* after which it is killed; 0: no limit */
        /* The queue of a short job that a client or a box caused. Few of these run at a time, and one of each queue;
         * the others wait, and the queues take turns. NULL: it starts at once. */
        const char *queue;
        /* Runs in the child, which has only these descriptors and the standard ones; `out_fd`, its standard output,
         * takes the answer. It may execute a program, and may read a copy of the daemon's memory. Returns 0, or -1 on
         * failure: then the answer is not used. */
        int (*work)(const int *fds, int out_fd, void *context);
        /* Gets the answer, or NULL if the child failed or was killed. The job is over: its owner must clear its
         * pointer. */
        void (*done)(void *context, const char *bytes, size_t size);
        void *context;
};

/* The name of the queue for jobs on this directory. */
void helper_job_name_queue(int fd, char ret_queue[static HELPER_JOB_QUEUE_ROOM]);

/* NULL if processes or descriptors are short, dozens of jobs are under way, or the key has no share left
 * (ERR_LIMIT). */
struct helper_job *helper_job_start(struct loop *loop, const struct helper_job_order *order, struct err *err);

/* Ends it; `done` is not called. It keeps its share until it is gone; this does not wait. NULL inside is fine. */
void helper_job_drop(struct helper_job **job);
