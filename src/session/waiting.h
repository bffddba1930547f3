/* Runs that wait for their turn and were acknowledged, on disk until they begin: one file for each below
 * <state>/waiting/, in the order of their numbers. The next daemon runs them, in order, each once: one whose id the
 * journal knows has begun. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct run;
struct session;

/* Writes the run down; from then on it is not lost with the daemon. */
int waiting_put(struct run *run, bool cancel_on_disconnect, struct err *err);

/* It has begun, or never will. Does nothing for one that was not written down. */
void waiting_drop(struct run *run);

/* Queues what the last daemon left. The journal of the session is settled (recovery.h). */
void waiting_load(struct session *session);
