/* The daemon's helper processes (vault, maker, reaper, janitor, proxy): when one dies, another is started.
 *
 * The owner of a helper starts the process, calls helper_started, and calls helper_died when it sees its end. The first
 * replacement is started at once. A helper that dies within a second is started again after a pause that doubles each
 * time, up to half a second: a helper that cannot run costs a fork now and then, never a busy loop. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"

struct helper {
        const char *name;   /* "vault" */
        struct loop *loop;
        int (*start)(void *context, struct err *err); /* calls helper_started */
        void *context;
        pid_t pid;          /* 0: it is not running */
        bool is_wanted;     /* false: it was not needed so far, or the daemon is ending */
        uint64_t started_ms;
        uint64_t n_restarts;
        unsigned n_short_lives; /* in a row */
        struct loop_timer *timer;
        char trouble[160];  /* why it could not be started last; "" */
};

/* Call it when the process runs: after the first start and every later one. */
void helper_started(struct helper *helper, pid_t pid);

/* Call it when the process has ended and the owner has cleaned up: logs it and starts another. */
void helper_died(struct helper *helper);

/* Starts no more processes. */
void helper_retire(struct helper *helper);

/* "running", "restarting", or "off": not needed so far. */
const char *helper_state(const struct helper *helper);
