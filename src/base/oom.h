/* Which processes Linux kills first when the host runs out of memory: boxes first, the daemon, its maker, its vault and
 * the supervisors last. Only root may lower a score (CAP_SYS_RESOURCE); without it only boxes are changed. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

enum {
        OOM_SPARED = -900, /* not -1000 (never): then Linux might have to kill something more important */
        OOM_ORDINARY = 0,
        OOM_OFFERED = 500, /* as privilege_offer_to_oom has it */
};

/* This process, and those that it starts from now on. Never raises what the administrator gave it. */
void oom_spare_self(void);

/* Undoes that for a child of such a process. The kernel remembers the lowest score that a privileged process ever gave,
 * and lets the process itself return to it: so another process must set this, before tenant code runs. Does nothing
 * where oom_spare_self could not. */
int oom_unspare(int pidfd, pid_t pid, int score, struct err *err);
