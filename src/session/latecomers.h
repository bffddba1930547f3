/* Processes of a box that have still to go into its v2 group. On a hybrid host that tree only counts CPU time and kills; a
 * move into it takes some 10 ms, for which nobody should wait: it is made after the box was handed over. */
#pragma once

#include "box/cgroup.h"

struct latecomers {
        int procs_fd; /* of the group; -1 when there is nothing to do */
        int pidfds[2];
};

#define LATECOMERS_NONE ((struct latecomers) { -1, { -1, -1 } })

/* Remembers the agent and the kernel (-1 for none) of a box that was not cloned into its v2 group; pidfds are borrowed. */
void latecomers_note(struct latecomers *latecomers, const struct cgroup *cgroup, int agent_fd, int kernel_fd);

/* Moves those that still live, and forgets them. */
void latecomers_admit(struct latecomers *latecomers);
