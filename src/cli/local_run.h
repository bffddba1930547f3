/* Runs that were made without a daemon, or whose daemon has gone, for `glovebox ps`, `top` and `kill`. Each has a file in <data>/runs as long as
 * it lives: what it runs, as JSON. Its process holds a lock on the file: an unlocked file means that the
 * process was killed, and removes it; and the lock names the process to be signalled. */
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

/* Makes the file, when the watchdog is there. A run that cannot be listed runs all the same. */
void local_run_announce(struct local_run *run, const struct run_request *request);
void local_run_end(struct local_run *run);

/* Adds them to `processes`, an array of what the daemon's `ps` answers. */
void local_run_list(json_t *processes);

/* Ends the one whose id begins like this: as Ctrl-C would, or, `hard`, at once. ERR_NOT_FOUND: there is none. */
int local_run_kill(const char *id, bool hard, struct err *err);
