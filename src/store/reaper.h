/* The reaper: a helper process that removes ended boxes, so that the daemon waits neither for the last process of a box
 * nor for the kernel to release a control group.
 *
 * There is one per process. Before reaper_start, and when its queue is full, the caller does the work itself. If the
 * daemon dies, the reaper finishes its queue; the next daemon removes the rest (daemon/takeover.h). */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/helper.h"
#include "box/cgroup/cgroup.h"

/* Starts it, and restarts it when it dies; the new one gets the unfinished work. The arguments must live as long as the
 * daemon. */
int reaper_start(struct helper *helper, const struct cgroup_host *host, const char *data_dir, struct err *err);

/* Call it before reaper_start: the settings of other engines, and the id by which their boxes are found. Borrowed for
 * ever. */
struct engine_settings;
void reaper_know_engines(const struct engine_settings *engines, const char *owner);

/* Ends and removes a box of another engine, in a process of its own, which tries again while the engine is away. */
void reaper_remove_box(const char *engine, const char *name);

/* Removes boxes of other engines that ended and were not removed. */
void reaper_sweep_boxes(void);

/* Waits until its queue is empty (bounded), and ends it. */
void reaper_stop(void);

/* For a box whose PID 1 was killed: removes its groups and releases the lease of its user id when its processes have
 * ended. The groups are released as by cgroup_destroy; the descriptors are taken over, either may be -1. */
void reaper_bury(struct cgroup *cgroup, int pidfd, int lease_fd);

/* Removes a directory of the daemon. */
void reaper_remove_tree(const char *path);

/* Closes descriptors of files without a name, which takes a while for a large one. At most three. */
void reaper_close(int *fds, size_t n_fds);

/* Like unlinkat and renameat, but the reaper frees the blocks of a large file that loses its name, because that can
 * wait for the disk. 0 or -errno. */
int reaper_unlink(int dir_fd, const char *name);
int reaper_rename(int from_fd, const char *from, int to_fd, const char *to);
