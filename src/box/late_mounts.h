/* Adds mounts to a box that is sealed already and has run no code of a caller yet: the workspace, data and script of
 * the caller that takes a box from the pool.
 *
 * The trees are opened, checked and cloned outside, as for a box that is made with them. A child of the caller joins
 * the box's mount namespace and moves them onto directories that every box has; it has the caller's capabilities, which
 * no process in the box has, and executes nothing. So the argument of the sealing still holds: the mounts belong to the
 * first user namespace of the box, and a process in the second cannot undo them (box/seal/stage.c, "lock"). The working
 * directory and Landlock depend on the final mounts: the kernel sets them before its first request
 * (guest/nursery/spawn.c, spawn_settle). */
#pragma once

#include "base/err.h"
#include "box/spec.h"

/* Attaches all of them, in order, in the box whose PID 1 is `box_pidfd`. `uid` and `gid` are the box's user on the
 * host. After a failure the box must be removed, because some mounts may exist. */
int late_mounts_attach(int box_pidfd, const struct box_mount *mounts, size_t n_mounts, uid_t uid, gid_t gid,
                       struct err *err);
