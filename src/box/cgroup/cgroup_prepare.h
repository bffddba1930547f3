/* Creates the directory below which the groups of boxes are made. */
#pragma once

#include "box/cgroup/cgroup.h"

/* On v2 only leaves hold processes: those of a group that was delegated to us move into this one below it. */
#define CGROUP_SELF_LEAF "glovebox.self"

/* Makes the parent of hierarchy `index` (a controller, or CGROUP_CONTROLLERS for the v2 tree), and on v2 enables the
 * usable controllers in it. Safe to repeat, and for several processes at once. */
int cgroup_prepare_parent(const struct cgroup_host *host, size_t index, struct err *err);
