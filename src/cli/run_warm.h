/* `glovebox run` through a daemon that has warm kernels ready. */
#pragma once

#include "cli/run_options.h"

enum { RUN_WARM_NOT_HERE = -1 }; /* no daemon, or not a run for it: make the box here */

/* Returns the exit status, or RUN_WARM_NOT_HERE: then nothing was printed and nothing has happened that counts. Never
 * starts a daemon. */
int run_warm(const struct run_options *options);
