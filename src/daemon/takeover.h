/* Taking over from a daemon that died: its sessions, the kernels that the vault holds, and clearing up the rest. */
#pragma once

#include "base/err.h"

struct session_manager;

int takeover_sessions(struct session_manager *manager, struct err *err);

/* Starts the runs that waited. */
void takeover_resume_runs(struct session_manager *manager);
