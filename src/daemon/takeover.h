/* Taking over from a daemon that died: its sessions, the kernels that the vault holds, and clearing up the rest. */
#pragma once

#include "base/err.h"

struct daemon;

int takeover_sessions(struct daemon *daemon, struct err *err);

/* Starts the runs that waited. */
void takeover_resume_runs(struct daemon *daemon);

/* Destroys control groups of this daemon's that belong to none of its kernels. */
/* But for those whose caller has claimed them (base/claim.h): a later sweep removes these. */
void takeover_sweep_groups(struct daemon *daemon);
