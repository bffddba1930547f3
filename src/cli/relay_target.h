/* The box of a relay's program: made by this process (box_target.c), or handed over by the daemon (program_target.c).
 * */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RELAY_TARGET_FDS = 3 };

enum relay_end {
        RELAY_EXITED,      /* wait_status is the process's */
        RELAY_NOT_STARTED, /* failed_errno */
        RELAY_TIMEOUT,
        RELAY_SIGNAL,      /* end_signal ended this process */
        RELAY_NO_READER,   /* the output has no reader */
        RELAY_BOX_DIED,    /* the agent is gone */
};

/* How the program ended. */
struct relay_outcome {
        enum relay_end end; /* EXITED, NOT_STARTED or BOX_DIED */
        int wait_status, failed_errno;
        uint64_t cpu_us, memory_peak_kib; /* of its main process, if known */
};

struct relay_target;

struct relay_target_type {
        /* Everything in the box, at once. */
        void (*kill)(struct relay_target *target);
        /* To the program and its process group; less than 0: it does not exist. */
        int (*signal)(struct relay_target *target, int signal_number);
        /* Fills in the descriptors to poll, at most RELAY_TARGET_FDS. Returns their number. */
        size_t (*watch)(struct relay_target *target, struct pollfd *ret_watched);
        /* Handles the result of poll. True: the program has ended. */
        bool (*serve)(struct relay_target *target, const struct pollfd *watched, struct relay_outcome *ret_outcome);
        /* True if it is ready for standard input. NULL: always. */
        bool (*takes_input)(const struct relay_target *target);
        /* At its end all its output is in the pipes: the relay does not wait until other processes of the box close
         * them. */
        bool is_settled_by_end;
};

struct relay_target {
        const struct relay_target_type *type;
};
