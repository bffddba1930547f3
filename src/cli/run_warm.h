/* `glovebox run` in a box of the daemon. */
#pragma once

#include "cli/run_options.h"

enum {
        RUN_WARM_NOT_HERE = -2, /* no daemon, or not a run for it: make the box here. Nothing has happened yet. */
        RUN_WARM_FAILED = -1,   /* with err */
};

/* Returns the exit status, or one of the above. */
int run_warm(const struct run_options *options, struct err *err);

/* Prints why the daemon did not make the box: before this process makes one. */
void run_warm_tell_reason(void);
