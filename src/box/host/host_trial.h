/* Tries what a box needs in child processes that leave nothing behind. */
#pragma once

#include "box/host/host.h"

/* The steps of the trial, in order. The step of the result is the one that failed, or TRIAL_PASSED. */
enum host_trial_step {
        TRIAL_FORK,
        TRIAL_USER_NAMESPACE,
        TRIAL_ID_MAP,
        TRIAL_NAMESPACES, /* mount, pid, net, ipc, uts, cgroup */
        TRIAL_MOUNTS,     /* private propagation and a tmpfs */
        TRIAL_PROC,       /* a new /proc: refused where the container's own /proc is covered in parts */
        TRIAL_PASSED,
};

/* A child makes the namespaces of a box, a grandchild mounts in them. Bounded to a few seconds. */
struct host_trial host_try_namespaces(void);

/* True if this host refuses a new /proc and nothing else that a box needs. Most containers do, because parts of their
 * /proc are covered. Tried once for a process and those that it forks. */
bool host_refuses_proc(void);

/* Maps the owner of a detached view of `path`. 0 or -errno; needs the host's own superuser. */
int host_try_idmapped_mount(const char *path);
