/* Takeover after a crash: adopts the sessions and the kernels that the vault holds, and removes the rest. */
#pragma once

#include "base/err.h"

struct session_manager;

int takeover_sessions(struct session_manager *manager, struct err *err);

/* Starts the runs that waited. */
void takeover_resume_runs(struct session_manager *manager);
