/* The relay: from the start of a run to its end, on the host. It moves bytes between the caller's descriptors and the
 * box's pipes, and watches the time limit, the agent and the signals of this process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/relay_target.h"

/* One output stream: passed on to to_fd, or kept (up to a bound) when to_fd is -1. */
struct relay_stream {
        int from_fd; /* owned */
        int to_fd;   /* borrowed */
        char *kept;  /* owned */
        size_t kept_size, kept_max;
        uint64_t cut_bytes; /* what did not fit */
        enum { RELAY_COPIES, RELAY_SPLICES, RELAY_SPLICES_WHEN_ROOM } how; /* splice: pages move from pipe to pipe */
        char *tail; /* borrowed: the last bytes are kept here, too, or NULL */
        size_t tail_size;
        size_t write_max; /* bytes that to_fd takes without blocking */
        /* bytes read and not yet written */
        char *pending;
        size_t pending_at, pending_size;
};

enum { RELAY_TAIL_BYTES = 4096 };

struct relay {
        struct relay_target *target; /* borrowed */
        struct relay_stream out, error;
        const char *input;   /* borrowed: what the program reads, in place of what follows, or NULL */
        size_t input_size;
        int input_from_fd;   /* borrowed: the caller's standard input, or -1 */
        int input_to_fd;     /* owned: the box's */
        uint64_t timeout_ms;

        enum relay_end end;
        struct relay_outcome outcome; /* how the program itself ended */
        bool has_exited;              /* by itself, perhaps after a signal: wait_status is its own */
        int end_signal;
        int write_errno; /* RELAY_NO_READER: EPIPE, or why the output could not be written */
        uint64_t duration_ms;
};

/* Runs until the process has ended, the box is dead and its last byte has been passed on. */
int relay_run(struct relay *relay, struct err *err);

void relay_release(struct relay *relay);
