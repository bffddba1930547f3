/* The clone of a box: its namespaces, and the ids that only its parent can map. */
#pragma once

#include "base/err.h"
#include "box/box.h"
#include "box/seal/stage.h"

/* A box that is being made: see box_prepare. */
struct box_birth {
        const struct box_spec *spec;
        struct box box;
        struct stage_fds fds; /* for the child */
        int sync_fd;          /* ours, to the child */
        int listener_fd;      /* ours: the proxy's socket is received here */
        bool has_memory_cgroup, has_pids_cgroup;
};

/* Clones the child and maps its ids. into_group: clones straight into the v2 group, which the caller must be allowed to
 * write to. Afterwards birth->fds are closed, and the child waits. */
int box_clone(struct box_birth *birth, bool into_group, struct err *err);
