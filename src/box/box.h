/* A box: made, spoken to through its agent, and taken apart. */
#pragma once

#include "base/err.h"
#include "box/cgroup.h"
#include "box/keeper.h"
#include "box/spec.h"

struct box {
        pid_t pid;      /* of the agent, on the host */
        int pidfd;      /* readable when every process of the box is gone */
        int control_fd; /* frames to and from the agent; closing it ends the box */
        struct cgroup cgroup;
        struct keeper keeper;
};

/* Makes and seals a box. On return the agent is running and nothing else; on failure nothing is left. */
int box_start(const struct box_spec *spec, const struct cgroup_host *host, struct box *ret_box, struct err *err);

/* Kills everything in the box at once and waits until it is gone (bounded). */
int box_kill(struct box *box, struct err *err);

/* Takes the box apart: processes, control groups, keeper. Fills ret_usage (may be NULL) before the groups go. Safe on a
 * zeroed struct. */
int box_end(struct box *box, struct cgroup_usage *ret_usage, struct err *err);
