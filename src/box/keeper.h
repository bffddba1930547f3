/* The keeper: a small process that cleans up after a glovebox that was killed. It waits for its creator to dismiss it
 * or to die, and in the second case ends the box and removes its control groups. */
#pragma once

#include "base/err.h"
#include "box/cgroup.h"

struct keeper {
        pid_t pid;
        int fd;
};

/* Starts it before the control groups called `name` are made. */
int keeper_start(const struct cgroup_host *host, const char *name, struct keeper *ret_keeper, struct err *err);

/* Everything was cleaned up: the keeper may go. Waits until it has. */
void keeper_dismiss(struct keeper *keeper);
