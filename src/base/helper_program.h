/* A helper process that executes this program again, with an empty environment: it holds no memory of its parent, such
 * as keys and passwords. Both share a socket of packets; the first packet holds the settings of the helper. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct helper_program {
        pid_t pid;
        int fd; /* the parent's end: readable with no data when the process is gone */
};

#define HELPER_PROGRAM_DOWN ((struct helper_program) { 0, -1 })

struct helper_program_kind {
        const char *argument; /* the first one, by which main() recognises the helper */
        const char *name; /* shown by ps */
        size_t settings_size;
};

/* Starts it from /proc/self/exe; `settings` are copied. `owner` is shown by ps: the data directory, or "". */
int helper_program_start(const struct helper_program_kind *kind, const void *settings, const char *owner,
                         struct helper_program *ret_helper, struct err *err);
void helper_program_stop(struct helper_program *helper); /* safe on HELPER_PROGRAM_DOWN */

/* Call it first in main(). In the helper: reads the settings and returns its end of the socket; exits if there are
 * none. In any other process: -1. */
int helper_program_begin(const struct helper_program_kind *kind, int argc, char **argv, void *ret_settings);
