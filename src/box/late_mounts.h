/* Mounts of a box that is sealed already and in which no code of a caller has run yet: a box that waited in the pool is
 * shown its caller's workspace, data and script.
 *
 * The trees are opened, checked and detached outside, as for a box that is made with them. A child of the caller joins
 * the box's mount namespace and moves them onto directories that every box has; it has the caller's capabilities, which
 * no process in the box has, and executes nothing. So the argument of the sealing still holds: what is mounted belongs
 * to the first user namespace of the box, and a process behind the second can undo none of it (box/seal/stage.c,
 * "lock"). What depends on the final mounts, the working directory and Landlock, is done by the kernel before its first
 * request (guest/nursery/spawn.c, spawn_settle). */
#pragma once

#include "base/err.h"
#include "box/spec.h"

/* Can something be shown there when the box is ready? */
bool late_mounts_has_place(const char *destination);

/* Attaches all of them, in order, in the box whose PID 1 is `box_pidfd`. `uid` and `gid` are the box's user on the
 * host. After a failure the box is of no use: some of them may be there. */
int late_mounts_attach(int box_pidfd, const struct box_mount *mounts, size_t n_mounts, uid_t uid, gid_t gid,
                       struct err *err);
