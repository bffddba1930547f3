/* The relay: everything that happens between the start of a run and its end, seen from outside. Moves bytes between
 * the caller's descriptors and the box's pipes, watches the clock, the agent and our own signals. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "box/box.h"

/* One output stream: passed on to to_fd, or kept (up to a bound) when to_fd is -1. */
struct relay_stream {
        int from_fd; /* owned */
        int to_fd;   /* borrowed */
        char *kept;  /* owned */
        size_t kept_size, kept_max;
        uint64_t cut_bytes; /* what did not fit */
        /* bytes read and not yet written */
        char *pending;
        size_t pending_at, pending_size;
};

enum relay_end {
        RELAY_EXITED,      /* wait_status is the process's */
        RELAY_NOT_STARTED, /* failed_errno, failed_step */
        RELAY_TIMEOUT,
        RELAY_SIGNAL,      /* we were told to stop by end_signal */
        RELAY_NO_READER,   /* nobody reads our output any more */
        RELAY_BOX_DIED,    /* the agent is gone */
};

struct relay {
        struct box *box;
        struct relay_stream out, error;
        int input_from_fd;   /* borrowed: the caller's standard input, or -1 */
        int input_to_fd;     /* owned: the box's */
        uint64_t timeout_ms;

        enum relay_end end;
        int wait_status, end_signal, failed_errno;
        int write_errno; /* RELAY_NO_READER: EPIPE, or why our output could not be written */
        char failed_step[64];
        uint64_t cpu_us, memory_peak_kib; /* as the agent saw the process */
        uint64_t duration_ms;
};

/* Runs until the process has ended, the box is dead and its last byte has been passed on. */
int relay_run(struct relay *relay, struct err *err);

void relay_release(struct relay *relay);
