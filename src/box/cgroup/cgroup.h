/* One box's control groups: memory, processes and CPU bounded before the first tenant byte runs, and the whole box
 * killable at once.
 *
 * Three kinds of host: pure cgroup v2; v1 controllers beside an empty cgroup2 tree (hybrid: the empty tree still gives
 * cgroup.kill and CLONE_INTO_CGROUP); v1 alone. A box is one directory of the same name in each hierarchy it needs,
 * below `glovebox/` in the group we may write to. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/limits.h"

enum cgroup_controller { CGROUP_MEMORY, CGROUP_PIDS, CGROUP_CPU, CGROUP_CONTROLLERS };

/* Where a box has a directory: in the hierarchy of each controller, and in these. */
enum { CGROUP_V2_TREE = CGROUP_CONTROLLERS, CGROUP_ACCOUNT /* v1 cpuacct, see cgroup_host_leave_v2 */, CGROUP_PLACES };

/* The limits that this host and this user can enforce. Determined once per process; the strings are for `doctor` and
 * the report. */
struct cgroup_host {
        enum cgroup_host_kind { CGROUP_NONE, CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 } kind;
        bool usable[CGROUP_CONTROLLERS];
        bool kill;             /* cgroup.kill through a v2 tree that we may write to */
        char parent[CGROUP_PLACES][512]; /* directories we create boxes in; "" for none */
        char relative[128];    /* the last part of each parent; may have to be created below the base */
        char why_not[400];     /* why something is not usable, and how to fix it; "" if everything is usable */
};

/* Reads /proc/self/cgroup and /proc/self/mountinfo, and checks what may be written. Never fails: `why_not` says what is
 * missing. Changes nothing: the first cgroup_create that needs them makes the parents and enables v2 controllers.
 * $GLOVEBOX_CGROUP_PARENT names the directory below each hierarchy's root to work in (default "glovebox"). */
void cgroup_host_look(struct cgroup_host *host);

/* For boxes whose processes are not cloned into their groups but enter them, as a forked kernel does: that takes 40 µs
 * on v1 and a grace period of the kernel (some 10 ms) on v2. If v1 enforces all limits, their groups are v1 alone, and
 * cpuacct counts their CPU time; killing the box's PID 1 replaces cgroup.kill. On other hosts nothing changes. */
void cgroup_host_leave_v2(struct cgroup_host *host);

const char *cgroup_kind_name(const struct cgroup_host *host); /* "v2", "v1", "hybrid", "none" */
const char *cgroup_controller_name(enum cgroup_controller controller); /* "memory", "pids", "cpu" */

/* True if this controller uses the directory in the v2 tree, and has no directory of its own. */
bool cgroup_host_in_v2(const struct cgroup_host *host, enum cgroup_controller controller);

struct cgroup {
        const struct cgroup_host *host;
        char name[64];
        int v2_fd; /* directory of the v2 tree for CLONE_INTO_CGROUP, or -1 */
        int tasks_fd[CGROUP_CONTROLLERS]; /* v1: open `tasks` of each controller, for cgroup_enter; or -1 */
        int entry_fd; /* also to enter: `tasks` of cpuacct, or cgroup.procs after cgroup_open_v2_entry; or -1 */
        uint64_t oom_kills_before;
};

/* Creates the directories and writes the limits. Everything made is undone on failure. With `weaker`, controllers the
 * host cannot give are left out; without it they are an error that describes how to fix the host. */
int cgroup_create(const struct cgroup_host *host, const char *name, const struct limits *limits, bool weaker,
                  struct cgroup *ret_cgroup, struct err *err);

/* Moves the calling process in; it must have one thread. A process cloned into v2_fd is in the v2 tree already: on a
 * pure v2 host nothing is left to do. It takes some 40 µs per controller; a parent that moves it waits for a grace period
 * of the kernel (9 ms), because a thread that moves only itself needs no lock against forks. */
int cgroup_enter(const struct cgroup *cgroup, struct err *err);

/* Makes cgroup_enter enter the v2 tree as well, for processes that cannot be cloned into it. */
int cgroup_open_v2_entry(struct cgroup *cgroup, struct err *err);

/* Changes the memory, processors and processes of a running box. The caller must refuse less memory than it uses
 * now. */
int cgroup_change_limits(const struct cgroup *cgroup, const struct limits *limits, struct err *err);

/* Sets the box's weight, which decides its share of busy processors. New boxes have the full weight. An idle box runs
 * only on a processor that is free, and any other process takes it at once. Weights that the host does not support are
 * ignored. */
enum { CGROUP_WEIGHT_FULL = 1024, CGROUP_WEIGHT_IDLE = 1 };
void cgroup_set_weight(const struct cgroup *cgroup, unsigned weight);

/* Makes all boxes together idle in the same sense, against every process outside of them; or ordinary again. Only if the
 * group that they are in has the weight that new groups have: one that the operator has given stays. */
void cgroup_host_set_idle(const struct cgroup_host *host, bool is_idle);

struct cgroup_usage {
        uint64_t cpu_us;
        uint64_t memory_now_bytes; /* without what the kernel can drop at once */
        uint64_t memory_peak_bytes;
        uint64_t oom_kills;
};

/* The resources that the box has used; unknown fields are 0. */
void cgroup_read_usage(const struct cgroup *cgroup, struct cgroup_usage *ret_usage);

/* Kills everything in the box and waits until it is empty (bounded), thawing first. The group is spent afterwards: some
 * kernels (seen on 6.18) kill whatever is cloned into a group after its cgroup.kill was written. Destroy it. */
int cgroup_kill(const struct cgroup *cgroup, struct err *err);

/* The same without waiting: one round, which may miss processes that fork meanwhile. Returns the number of processes
 * found. If that is 0 and the group cannot be removed, its processes are ending, or are in another PID namespace and
 * cannot be killed. */
int cgroup_kill_now(const struct cgroup *cgroup);

/* Removes the directories if nothing is in them. -EBUSY: something is. */
int cgroup_remove_empty(const struct cgroup_host *host, const char *name);

/* Removes the directories. Kills what is still inside. Closes the descriptors; safe on a zeroed or released struct. */
int cgroup_destroy(struct cgroup *cgroup, struct err *err);

/* Closes the groups without changing them: another process destroys them by name. */
void cgroup_release(struct cgroup *cgroup);

/* Opens groups that another process made, to read their usage and to destroy them. */
int cgroup_adopt(const struct cgroup_host *host, const char *name, struct cgroup *ret_cgroup, struct err *err);

/* The same by name alone, to clean up after a killed glovebox. Missing directories are fine. */
int cgroup_destroy_by_name(const struct cgroup_host *host, const char *name, struct err *err);
