/* Acknowledged runs that have not started, on disk: one numbered file for each below <state>/waiting/. After a crash
 * the next daemon runs them in order, each once: a run whose id is in the journal has begun already. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct run;
struct session;

/* Writes the run to disk, so that a crash of the daemon does not lose it. */
int waiting_run_put(struct run *run, bool cancel_on_disconnect, struct err *err);

/* Removes the file of a run that has begun or never will. Does nothing if it has no file. */
void waiting_run_drop(struct run *run);

/* Queues the runs that the last daemon left. The journal of the session is settled (recovery.h). -1: there were too few
 * descriptors or too little memory; what was not queued is still on the disk. */
int waiting_run_load(struct session *session, struct err *err);
