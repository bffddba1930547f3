/* The reaper: a process of the daemon's that removes what ended boxes leave behind, so that the daemon never waits for
 * the last process of a box to be gone, nor for the kernel to let a control group go.
 *
 * One per process; before reaper_start, and when it cannot take more, the same is done on the spot. It finishes what it
 * was given when the daemon dies; what it was not given is swept up by the next daemon (daemon/takeover.h). */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/helper.h"
#include "box/cgroup/cgroup.h"

/* Forks it, and others in its place when it dies: they get what it had not done. What it is given lives as
 * long as the daemon. */
int reaper_start(struct helper *helper, const struct cgroup_host *host, const char *data_dir, struct err *err);

/* Before reaper_start: how boxes of other engines are reached, and by which id they are found. Borrowed for good. */
struct engine_settings;
void reaper_know_engines(const struct engine_settings *engines, const char *owner);

/* Ends and removes a box of another engine, in a process of its own, which tries again while the engine is away. */
void reaper_remove_box(const char *engine, const char *name);

/* Removes boxes of other engines that ended and were not removed. */
void reaper_sweep_boxes(void);

/* Waits until all that it was given is gone (bounded); it ends. */
void reaper_stop(void);

/* A box whose PID 1 was killed: its groups, and the lease of its user id, go when its processes have. The groups are
 * released as by cgroup_destroy; the descriptors are taken over, either may be -1. */
void reaper_bury(struct cgroup *cgroup, int pidfd, int lease_fd);

/* A directory of the daemon that is not needed any more. */
void reaper_remove_tree(const char *path);

/* Closes descriptors of files that may go with them: with a large one that takes a while. At most three. */
void reaper_close(int *fds, size_t n_fds);

/* As unlinkat and renameat do, but the blocks of a large file that goes with its name are given back by the reaper: that
 * can take as long as the disk likes. 0 or -errno. */
int reaper_unlink(int dir_fd, const char *name);
int reaper_rename(int from_fd, const char *from, int to_fd, const char *to);
