/* Artifacts of ephemeral runs, in <data>/outputs/<run>: kept for a while, to be fetched. */
#pragma once

struct session_manager;

/* Removes those that are older than --keep-outputs. Calls in quick succession do nothing. */
void outputs_sweep(struct session_manager *manager);

/* Notes when a run's outputs were stored, by a clock that is never set back. */
void outputs_stamp(const struct session_manager *manager, const char *path);
