/* A box: making it, communicating with its agent, and removing it. */
#pragma once

#include "base/err.h"
#include "box/cgroup/cgroup.h"
#include "box/host/cleanup_watchdog.h"
#include "box/spec.h"

struct box {
        pid_t pid;      /* of the agent, on the host */
        int pidfd;      /* readable when every process of the box is gone */
        int control_fd; /* frames to and from the agent; closing it ends the box */
        struct cgroup cgroup;
        struct cleanup_watchdog watchdog;
};

/* Makes and seals a box. On return only the agent is running; on failure nothing is left. */
int box_start(const struct box_spec *spec, const struct cgroup_host *host, struct box *ret_box, struct err *err);

/* The same in steps, for a box whose namespaces another process makes (see spawn/supervisor.h). The steps are
 * box_prepare, box_clone (box/seal/box_clone.h), box_proceed and box_settle. `spec` is borrowed until the end. After a
 * failure, or instead of the next step, box_abandon removes what was made. */
struct box_birth;

/* Opens everything that has to be looked up on the host, and makes the control groups. */
int box_prepare(const struct box_spec *spec, const struct cgroup_host *host, struct box_birth *ret_birth,
                struct err *err);

/* Lets the child continue. */
int box_proceed(struct box_birth *birth, struct err *err);

/* Waits until it has become the agent; birth->sync_fd is readable then. */
int box_settle(struct box_birth *birth, struct box *ret_box, struct err *err);

void box_abandon(struct box_birth *birth);

/* Kills everything in the box at once and waits until it is gone (bounded). */
int box_kill(struct box *box, struct err *err);

/* Removes the box: processes, control groups, watchdog. Fills ret_usage (may be NULL) before the groups go. Safe on a
 * zeroed struct. */
int box_end(struct box *box, struct cgroup_usage *ret_usage, struct err *err);
