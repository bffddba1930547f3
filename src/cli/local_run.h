/* Runs without a daemon, for `glovebox ps`, `top` and `kill`: also runs whose daemon has exited. Each has a file in
 * <data>/runs while it runs, with its description as JSON. Its process holds a lock on the file. An unlocked file means
 * that the process was killed, and is removed. The lock also names the process to be signalled. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "cli/run_request.h"

struct local_run {
        int fd;
        char path[4200];
};

#define LOCAL_RUN_NONE ((struct local_run) { .fd = -1 })

/* Fills `path`, for the watchdog, which removes the file of a run that was killed. */
void local_run_name(struct local_run *run, const char *data_dir, const char *id);

/* Makes the file; the watchdog must exist. A run that cannot be listed runs nevertheless. */
void local_run_announce(struct local_run *run, const struct run_request *request);
void local_run_end(struct local_run *run);

/* Adds them to `processes`, the array in the answer of the daemon's `ps`. */
void local_run_list(json_t *processes);

/* Ends the run whose id begins so: as Ctrl-C would, or at once with `hard`. ERR_NOT_FOUND: there is none. */
int local_run_kill(const char *id, bool hard, struct err *err);
