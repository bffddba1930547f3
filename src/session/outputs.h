/* Artifacts of ephemeral runs, in <data>/outputs/<run>: kept for a while, to be fetched. */
#pragma once

struct session_manager;

/* Has those removed that are older than they are kept (--keep-outputs). Looks at most every so often. */
void outputs_sweep(struct session_manager *manager);

/* Notes when a run's outputs were put there, in time that does not jump with the time of day. */
void outputs_stamp(const struct session_manager *manager, const char *path);
