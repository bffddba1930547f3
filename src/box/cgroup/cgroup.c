/* The directories of one box: creating them with their limits, reading, removing. cgroup_kill.c kills their
 * processes. */
#include "box/cgroup/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "box/cgroup/cgroup_file.h"
#include "box/cgroup/cgroup_kill.h"
#include "box/cgroup/cgroup_prepare.h"
#include "box/cgroup/cgroup_text.h"

enum { V2 = CGROUP_V2_TREE };

/* The agent and the box's supervisor are in the groups of the box, too, but do not count for the user. */
enum { SOCKETS_LEAST = 16 << 20 }; /* enough for any ordinary use of the loopback */
enum { OWN_PROCESSES = 2, CPU_PERIOD_US = 100000, DEPTH_MAX = 8 };

#define SWAPPINESS "memory.swappiness"

/* v1: bytes that wait in TCP and UDP sockets do not count for its memory limit. */
#define SOCKETS "memory.kmem.tcp.limit_in_bytes"

/* Every file that is written, in the order that the kernel demands (memsw may never be below the plain limit). */
enum knob_value {
        KNOB_MEMORY,
        KNOB_SOCKETS,
        KNOB_ZERO,
        KNOB_ONE,
        KNOB_PIDS,
        KNOB_CPU_MAX,
        KNOB_CPU_QUOTA,
        KNOB_CPU_PERIOD
};
static const struct knob {
        enum cgroup_controller controller;
        bool v2;
        bool optional; /* kernels without swap accounting, and old ones, lack it; the bound itself does not need it */
        const char *file;
        enum knob_value value;
} knobs[] = {
        { CGROUP_MEMORY, true, false, "memory.max", KNOB_MEMORY },
        { CGROUP_MEMORY, true, true, "memory.swap.max", KNOB_ZERO },
        { CGROUP_MEMORY, true, true, "memory.oom.group", KNOB_ONE },
        { CGROUP_PIDS, true, false, "pids.max", KNOB_PIDS },
        { CGROUP_CPU, true, false, "cpu.max", KNOB_CPU_MAX },
        { CGROUP_MEMORY, false, false, "memory.limit_in_bytes", KNOB_MEMORY },
        { CGROUP_MEMORY, false, true, "memory.memsw.limit_in_bytes", KNOB_MEMORY },
        { CGROUP_MEMORY, false, true, SOCKETS, KNOB_SOCKETS },
        { CGROUP_MEMORY, false, true, SWAPPINESS, KNOB_ZERO },
        { CGROUP_PIDS, false, false, "pids.max", KNOB_PIDS },
        { CGROUP_CPU, false, false, "cpu.cfs_period_us", KNOB_CPU_PERIOD },
        { CGROUP_CPU, false, false, "cpu.cfs_quota_us", KNOB_CPU_QUOTA },
};

/* New groups take the swappiness of the group above, which is ours too. */
static bool inherits_swappiness;

/* True if a new group has the wanted value already. The default period is the same for all groups, so it is read
 * once. */
static bool is_set(const struct knob *knob, int dir_fd) {
        static uint64_t period_us;
        if (inherits_swappiness && strcmp(knob->file, SWAPPINESS) == 0)
                return true;
        if (knob->value != KNOB_CPU_PERIOD)
                return false;
        if (!period_us && cgroup_file_read_number(dir_fd, knob->file, &period_us) < 0)
                period_us = 0;
        return period_us == CPU_PERIOD_US;
}

static void format_value(enum knob_value value, const struct limits *limits, char ret_text[static 64]) {
        uint64_t quota_us = limits->cpu_thousandths * (CPU_PERIOD_US / 1000);
        switch (value) {
        case KNOB_MEMORY:
                (void) snprintf(ret_text, 64, "%" PRIu64, limits->memory_bytes);
                return;
        case KNOB_SOCKETS:
                (void) snprintf(ret_text, 64, "%" PRIu64,
                                limits->memory_bytes / 8 > SOCKETS_LEAST ? limits->memory_bytes / 8 : SOCKETS_LEAST);
                return;
        case KNOB_ZERO:
        case KNOB_ONE:
                (void) snprintf(ret_text, 64, "%d", value == KNOB_ONE);
                return;
        case KNOB_PIDS:
                (void) snprintf(ret_text, 64, "%" PRIu64, limits->pids + OWN_PROCESSES);
                return;
        case KNOB_CPU_MAX:
                (void) snprintf(ret_text, 64, "%" PRIu64 " %d", quota_us, CPU_PERIOD_US);
                return;
        case KNOB_CPU_QUOTA:
                (void) snprintf(ret_text, 64, "%" PRIu64, quota_us);
                return;
        case KNOB_CPU_PERIOD:
                (void) snprintf(ret_text, 64, "%d", CPU_PERIOD_US);
                return;
        }
}

static int explain_knob(const struct knob *knob, const char *text, int code, struct err *err) {
        const char *name = cgroup_controller_name(knob->controller);
        if (code == -ENOENT)
                return err_set(err, ERR_UNSUPPORTED,
                               "this kernel cannot bound %s: the control group has no %s; use a "
                               "kernel with that controller, or --allow-weaker",
                               name, knob->file);
        if (code == -EINVAL && knob->controller == CGROUP_CPU)
                return err_set(err, ERR_REFUSED,
                               "the kernel refused the CPU limit (%s to %s): the group above allows "
                               "less; choose a smaller --cpus",
                               text, knob->file);
        return err_sys(err, -code, "cannot write the %s limit (%s to %s); see glovebox doctor", name, text, knob->file);
}

/* Returns 1 when the kernel lacks the controller and `weaker` lets us go without. */
static int write_limits(const struct cgroup_host *host, enum cgroup_controller controller, int dir_fd,
                        const struct limits *limits, bool weaker, struct err *err) {
        bool v2 = cgroup_host_in_v2(host, controller), prepared = false;
        for (size_t i = 0; i < ELEMENTS(knobs); i++) {
                const struct knob *knob = &knobs[i];
                if (knob->controller != controller || knob->v2 != v2 || is_set(knob, dir_fd))
                        continue;
                char text[64];
                format_value(knob->value, limits, text);
                int code = cgroup_file_write(dir_fd, knob->file, text);
                if (code == -ENOENT && v2 && !knob->optional && !prepared) {
                        /* The parent exists, but its controllers are not enabled yet. */
                        prepared = true;
                        if (cgroup_prepare_parent(host, V2, err) < 0)
                                return -1;
                        code = cgroup_file_write(dir_fd, knob->file, text);
                }
                if (code == -ENOENT && (knob->optional || weaker)) {
                        if (!knob->optional)
                                return 1;
                        continue;
                }
                if (code < 0)
                        return explain_knob(knob, text, code, err);
        }
        return 0;
}

/* Of groups that have processes. In the first pass a value that depends on one not yet written may be refused. */
static int change_limits(const struct cgroup_host *host, enum cgroup_controller controller, int dir_fd,
                         const struct limits *limits, int pass, struct err *err) {
        bool v2 = cgroup_host_in_v2(host, controller);
        for (size_t i = 0; i < ELEMENTS(knobs); i++) {
                const struct knob *knob = &knobs[i];
                bool is_amount = knob->value == KNOB_MEMORY || knob->value == KNOB_PIDS ||
                                 knob->value == KNOB_CPU_MAX || knob->value == KNOB_CPU_QUOTA;
                if (knob->controller != controller || knob->v2 != v2 || !is_amount)
                        continue;
                char text[64];
                format_value(knob->value, limits, text);
                int code = cgroup_file_write(dir_fd, knob->file, text);
                if (code < 0 && code != -ENOENT && pass > 0)
                        return explain_knob(knob, text, code, err);
        }
        return 0;
}

static int check_name(const char *name, struct err *err) {
        if (strlen(name) >= sizeof(((struct cgroup *) 0)->name) || strchr(name, '/') || !cgroup_text_is_relative(name))
                return err_set(err, ERR_USAGE,
                               "\"%.70s\" cannot name a control group; use at most 63 letters, digits and dashes",
                               name);
        return 0;
}

static int check_usable(const struct cgroup_host *host, bool weaker, struct err *err) {
        for (size_t c = 0; c < CGROUP_CONTROLLERS && !weaker; c++)
                if (!host->usable[c])
                        return err_set(err, ERR_UNSUPPORTED, "this host cannot enforce the limits of a box: %s",
                                       host->why_not);
        return 0;
}

/* The first hierarchy that shares this one's parent: v1 controllers may be mounted together. */
static size_t directory_of(const struct cgroup_host *host, size_t index) {
        if (index < V2 && cgroup_host_in_v2(host, (enum cgroup_controller) index))
                return V2;
        for (size_t i = 0; i < index && index < V2; i++)
                if (strcmp(host->parent[i], host->parent[index]) == 0)
                        return i;
        return index;
}

/* The parents stay open: one process makes many boxes. */
static struct {
        char path[CGROUP_PATH_MAX];
        int fd;
} parents[CGROUP_PLACES] = { { .fd = -1 }, { .fd = -1 }, { .fd = -1 }, { .fd = -1 }, { .fd = -1 } };

/* Borrowed, or -1 with err. */
static int open_parent(const struct cgroup_host *host, size_t index, struct err *err) {
        const char *path = host->parent[index];
        if (parents[index].fd >= 0 && strcmp(parents[index].path, path) == 0)
                return parents[index].fd;
        int fd = cgroup_file_open_dir(AT_FDCWD, path);
        if (fd == -ENOENT) {
                if (cgroup_prepare_parent(host, index, err) < 0)
                        return -1;
                fd = cgroup_file_open_dir(AT_FDCWD, path);
        }
        if (fd < 0)
                return err_sys(err, -fd, "cannot open the control group %s", path);
        fd_close(&parents[index].fd);
        (void) snprintf(parents[index].path, sizeof(parents[index].path), "%s", path);
        if (index == CGROUP_MEMORY) {
                inherits_swappiness = cgroup_file_write(fd, SWAPPINESS, "0") == 0;
                /* No bound. The kernel changes its own code for the first group that has one and for the last. */
                (void) cgroup_file_write(fd, SOCKETS, "9223372036854771712");
        }
        return parents[index].fd = fd;
}

/* Makes parent/name and returns an open directory, or -1 with err. */
static int make_directory(const struct cgroup_host *host, size_t index, const char *name, struct err *err) {
        int parent_fd = open_parent(host, index, err);
        if (parent_fd < 0)
                return -1;
        int code = mkdirat(parent_fd, name, 0755);
        if (code < 0 && (errno == ENOENT || errno == ENODEV)) { /* the parent was removed: it is made again */
                fd_close(&parents[index].fd);
                parent_fd = open_parent(host, index, err);
                if (parent_fd < 0)
                        return -1;
                code = mkdirat(parent_fd, name, 0755);
        }
        if (code < 0) {
                if (errno == EEXIST)
                        return err_set(err, ERR_EXISTS,
                                       "the control group %s/%s exists already: another box has this "
                                       "name, or one was left behind",
                                       host->parent[index], name);
                return err_sys(err, errno, "cannot create the control group %s/%s", host->parent[index], name);
        }
        int fd = cgroup_file_open_dir(parent_fd, name);
        if (fd < 0) {
                (void) unlinkat(parent_fd, name, AT_REMOVEDIR);
                return err_sys(err, -fd, "cannot open the control group %s/%s", host->parent[index], name);
        }
        return fd;
}

static void close_directories(int fds[], size_t n) {
        for (size_t i = 0; i < n; i++)
                fd_close(&fds[i]);
}

static int create_in_v2(const struct cgroup_host *host, const char *name, int dirs[static CGROUP_PLACES],
                        struct err *err) {
        if (!host->parent[V2][0])
                return 0;
        dirs[V2] = make_directory(host, V2, name, err);
        if (dirs[V2] < 0)
                return -1;
        int code = cgroup_file_write(dirs[V2], "cgroup.max.descendants", "0");
        if (code < 0 && code != -ENOENT)
                return err_sys(err, -code, "cannot forbid groups below %s/%s", host->parent[V2], name);
        return 0;
}

static int create_for_account(const struct cgroup_host *host, const char *name, int dirs[static CGROUP_PLACES],
                              struct cgroup *cgroup, struct err *err) {
        if (!host->parent[CGROUP_ACCOUNT][0])
                return 0;
        dirs[CGROUP_ACCOUNT] = make_directory(host, CGROUP_ACCOUNT, name, err);
        if (dirs[CGROUP_ACCOUNT] < 0)
                return -1;
        cgroup->entry_fd = openat(dirs[CGROUP_ACCOUNT], "tasks", O_WRONLY | O_CLOEXEC);
        return cgroup->entry_fd < 0 ? err_sys(err, errno, "cannot open %s/%s/tasks", host->parent[CGROUP_ACCOUNT], name)
                                    : 0;
}

/* Opens or creates the directory of each controller. dirs[] holds the created ones: on failure exactly those are
 * removed. */
static int create_in(const struct cgroup_host *host, const char *name, const struct limits *limits, bool weaker,
                     int dirs[static CGROUP_PLACES], struct cgroup *cgroup, struct err *err) {
        if (create_in_v2(host, name, dirs, err) < 0)
                return -1;
        for (size_t c = 0; c < CGROUP_CONTROLLERS; c++) {
                if (!host->usable[c])
                        continue;
                size_t where = directory_of(host, c);
                if (where == c && (dirs[c] = make_directory(host, c, name, err)) < 0)
                        return -1;
                int code = write_limits(host, (enum cgroup_controller) c, dirs[where], limits, weaker, err);
                if (code < 0)
                        return -1;
                if (where == V2 || code > 0 || cgroup->tasks_fd[where] >= 0)
                        continue;
                cgroup->tasks_fd[c] = openat(dirs[where], "tasks", O_WRONLY | O_CLOEXEC);
                if (cgroup->tasks_fd[c] < 0)
                        return err_sys(err, errno, "cannot open %s/%s/tasks", host->parent[c], name);
        }
        return create_for_account(host, name, dirs, cgroup, err);
}

static void remove_made(const struct cgroup_host *host, const char *name, const int dirs[static CGROUP_PLACES]) {
        char path[CGROUP_PATH_MAX + 64];
        for (size_t i = 0; i < CGROUP_PLACES; i++)
                if (dirs[i] >= 0) {
                        (void) snprintf(path, sizeof(path), "%s/%s", host->parent[i], name);
                        (void) rmdir(path);
                }
}

int cgroup_create(const struct cgroup_host *host, const char *name, const struct limits *limits, bool weaker,
                  struct cgroup *ret_cgroup, struct err *err) {
        if (check_name(name, err) < 0 || check_usable(host, weaker, err) < 0)
                return -1;
        struct cgroup cgroup = { .host = host, .v2_fd = -1, .tasks_fd = { -1, -1, -1 }, .entry_fd = -1 };
        (void) snprintf(cgroup.name, sizeof(cgroup.name), "%s", name);
        int dirs[CGROUP_PLACES] = { -1, -1, -1, -1, -1 };
        int code = create_in(host, name, limits, weaker, dirs, &cgroup, err);
        if (code < 0) {
                remove_made(host, name, dirs);
                close_directories(cgroup.tasks_fd, CGROUP_CONTROLLERS);
                fd_close(&cgroup.entry_fd);
        } else {
                cgroup.v2_fd = take_fd(&dirs[V2]);
                *ret_cgroup = cgroup;
        }
        close_directories(dirs, CGROUP_PLACES);
        return code;
}

/* A fresh descriptor of a controller's directory, or -errno. */
static int open_group(const struct cgroup *cgroup, size_t place) {
        char path[CGROUP_PATH_MAX + 64];
        if (!cgroup->host->parent[place][0])
                return -ENOENT;
        (void) snprintf(path, sizeof(path), "%s/%s", cgroup->host->parent[place], cgroup->name);
        return cgroup_file_open_dir(AT_FDCWD, path);
}

int cgroup_open_v2_entry(struct cgroup *cgroup, struct err *err) {
        if (cgroup->v2_fd < 0 || cgroup->entry_fd >= 0)
                return 0;
        cgroup->entry_fd = openat(cgroup->v2_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        return cgroup->entry_fd < 0 ? err_sys(err, errno, "cannot open cgroup.procs of %s", cgroup->name) : 0;
}

/* Page cache of files that were read or written once. The kernel drops it as soon as memory is short, so it does not
 * count as used. At most `most`. */
static uint64_t read_reclaimable(int memory_fd, bool v2, uint64_t most) {
        uint64_t bytes = 0;
        if (cgroup_file_read_key(memory_fd, "memory.stat", v2 ? "inactive_file" : "total_inactive_file", &bytes) < 0)
                return 0;
        return bytes < most ? bytes : most;
}

/* One limit depends on another (memory.limit_in_bytes and memory.memsw.limit_in_bytes), and which must be written first
 * depends on the direction of the change. So a refused value is written again after the others. */
int cgroup_change_limits(const struct cgroup *cgroup, const struct limits *limits, struct err *err) {
        if (!cgroup->host)
                return err_set(err, ERR_UNSUPPORTED, "the box has no control group");
        for (int pass = 0; pass < 2; pass++)
                for (size_t c = 0; c < CGROUP_CONTROLLERS; c++) {
                        _cleanup_fd_ int dir_fd = open_group(cgroup, c);
                        if (dir_fd < 0)
                                continue; /* a box that was made without it, --allow-weaker */
                        int code = change_limits(cgroup->host, (enum cgroup_controller) c, dir_fd, limits, pass, err);
                        if (code < 0)
                                return -1;
                }
        return 0;
}

void cgroup_set_weight(const struct cgroup *cgroup, unsigned weight) {
        enum { V2_FULL = 100 }; /* the same proportion, in its own unit */
        if (!cgroup->host || !cgroup->host->usable[CGROUP_CPU])
                return;
        bool v2 = cgroup_host_in_v2(cgroup->host, CGROUP_CPU);
        unsigned value = v2 ? (weight * V2_FULL + CGROUP_WEIGHT_FULL - 1) / CGROUP_WEIGHT_FULL : weight;
        char text[16];
        _cleanup_fd_ int dir_fd = open_group(cgroup, CGROUP_CPU);
        (void) snprintf(text, sizeof(text), "%u", value);
        if (dir_fd < 0)
                return;
        /* An idle group has no other weight. Linux before 5.15 has neither idle groups nor the file. */
        bool is_idle = weight == CGROUP_WEIGHT_IDLE && cgroup_file_write(dir_fd, "cpu.idle", "1") == 0;
        if (weight != CGROUP_WEIGHT_IDLE)
                (void) cgroup_file_write(dir_fd, "cpu.idle", "0");
        if (!is_idle)
                (void) cgroup_file_write(dir_fd, v2 ? "cpu.weight" : "cpu.shares", text);
}

void cgroup_host_set_idle(const struct cgroup_host *host, bool is_idle) {
        enum { V1_ORDINARY = 1024, V2_ORDINARY = 100 };
        if (!host->usable[CGROUP_CPU])
                return;
        bool v2 = cgroup_host_in_v2(host, CGROUP_CPU);
        uint64_t weight = 0;
        _cleanup_fd_ int dir_fd = cgroup_file_open_dir(AT_FDCWD, host->parent[CGROUP_CPU]);
        if (dir_fd < 0 || cgroup_file_read_number(dir_fd, v2 ? "cpu.weight" : "cpu.shares", &weight) < 0)
                return;
        /* That of an idle group is neither, so a daemon that crashed leaves nothing that this does not undo. */
        if (!is_idle || weight == (v2 ? V2_ORDINARY : V1_ORDINARY))
                (void) cgroup_file_write(dir_fd, "cpu.idle", is_idle ? "1" : "0");
}

void cgroup_read_usage(const struct cgroup *cgroup, struct cgroup_usage *ret_usage) {
        struct cgroup_usage usage = { 0 };
        if (cgroup->host) {
                bool v2 = cgroup_host_in_v2(cgroup->host, CGROUP_MEMORY);
                _cleanup_fd_ int memory_fd = open_group(cgroup, CGROUP_MEMORY);
                (void) cgroup_file_read_number(memory_fd, v2 ? "memory.current" : "memory.usage_in_bytes",
                                               &usage.memory_now_bytes);
                usage.memory_now_bytes -= read_reclaimable(memory_fd, v2, usage.memory_now_bytes);
                (void) cgroup_file_read_number(memory_fd, v2 ? "memory.peak" : "memory.max_usage_in_bytes",
                                               &usage.memory_peak_bytes);
                (void) cgroup_file_read_key(memory_fd, v2 ? "memory.events" : "memory.oom_control", "oom_kill",
                                            &usage.oom_kills);
                usage.oom_kills -=
                        usage.oom_kills < cgroup->oom_kills_before ? usage.oom_kills : cgroup->oom_kills_before;

                /* The v2 tree counts CPU time without any controller; on v1 cpuacct is often mounted with cpu. */
                if (cgroup_file_read_key(cgroup->v2_fd, "cpu.stat", "usage_usec", &usage.cpu_us) < 0) {
                        bool apart = cgroup->host->parent[CGROUP_ACCOUNT][0];
                        _cleanup_fd_ int cpu_fd = open_group(cgroup, apart ? CGROUP_ACCOUNT : CGROUP_CPU);
                        uint64_t nanoseconds = 0;
                        if (cgroup_file_read_number(cpu_fd, "cpuacct.usage", &nanoseconds) == 0)
                                usage.cpu_us = nanoseconds / 1000;
                }
        }
        *ret_usage = usage;
}

/* Removes whatever directories are below. A tenant cannot make any; a damaged or older run may have. */
static void remove_below(int dir_fd, int depth) {
        int scan_fd = cgroup_file_open_dir(dir_fd, ".");
        DIR *dir = scan_fd < 0 ? NULL : fdopendir(scan_fd);
        if (!dir) {
                fd_close(&scan_fd);
                return;
        }
        for (struct dirent *entry; (entry = dir_next(dir));) {
                if (entry->d_type != DT_DIR)
                        continue;
                _cleanup_fd_ int child_fd = cgroup_file_open_dir(dir_fd, entry->d_name);
                if (child_fd < 0)
                        continue;
                (void) cgroup_kill_listed(child_fd);
                if (depth < DEPTH_MAX)
                        remove_below(child_fd, depth + 1);
                (void) unlinkat(dir_fd, entry->d_name, AT_REMOVEDIR);
        }
        (void) closedir(dir);
}

/* Removes one hierarchy's directory. The kernel returns EBUSY for a moment after the last process died, so this
 * retries:
 * 50 µs, doubling up to 12.8 ms, two to three seconds in all. */
static int remove_directory(const char *path, bool patient) {
        for (long sleep_us = 50, rounds = 0;; rounds++) {
                if (rmdir(path) == 0 || errno == ENOENT)
                        return 0;
                if (errno != EBUSY || !patient || rounds >= 200)
                        return -errno;
                if (rounds % 16 == 0) {
                        _cleanup_fd_ int dir_fd = cgroup_file_open_dir(AT_FDCWD, path);
                        (void) cgroup_kill_listed(dir_fd);
                        remove_below(dir_fd, 0);
                }
                (void) nanosleep(&(struct timespec) { .tv_nsec = sleep_us * 1000 }, NULL);
                if (sleep_us < 12800)
                        sleep_us *= 2;
        }
}

static int remove_all(const struct cgroup_host *host, const char *name, bool patient, struct err *err) {
        int code = 0;
        for (size_t i = CGROUP_PLACES; i-- > 0;) {
                if (!host->parent[i][0] || directory_of(host, i) != i)
                        continue;
                char path[CGROUP_PATH_MAX + 64];
                (void) snprintf(path, sizeof(path), "%s/%s", host->parent[i], name);
                int one = remove_directory(path, patient);
                if (one < 0 && code == 0)
                        code = err_sys(err, -one, "cannot remove the control group %s", path);
        }
        return code;
}

void cgroup_release(struct cgroup *cgroup) {
        if (!cgroup->host)
                return;
        fd_close(&cgroup->v2_fd);
        fd_close(&cgroup->entry_fd);
        close_directories(cgroup->tasks_fd, CGROUP_CONTROLLERS);
        cgroup->host = NULL;
}

int cgroup_remove_empty(const struct cgroup_host *host, const char *name) {
        struct err ignored;
        if (check_name(name, &ignored) < 0)
                return -EINVAL;
        return remove_all(host, name, false, &ignored) < 0 ? -EBUSY : 0;
}

int cgroup_adopt(const struct cgroup_host *host, const char *name, struct cgroup *ret_cgroup, struct err *err) {
        if (check_name(name, err) < 0)
                return -1;
        struct cgroup cgroup = { .host = host, .v2_fd = -1, .tasks_fd = { -1, -1, -1 }, .entry_fd = -1 };
        (void) snprintf(cgroup.name, sizeof(cgroup.name), "%s", name);
        if (host->parent[V2][0]) {
                char path[CGROUP_PATH_MAX + 64];
                (void) snprintf(path, sizeof(path), "%s/%s", host->parent[V2], name);
                cgroup.v2_fd = cgroup_file_open_dir(AT_FDCWD, path);
        }
        *ret_cgroup = cgroup;
        return 0;
}

int cgroup_destroy(struct cgroup *cgroup, struct err *err) {
        if (!cgroup->host)
                return 0;
        struct err ignored;
        int code = remove_all(cgroup->host, cgroup->name, false, &ignored);
        if (code < 0) {
                /* Does not wait for processes that cannot be killed. */
                bool hopeless = cgroup_kill(cgroup, &ignored) < 0 && ignored.code == ERR_REFUSED;
                code = remove_all(cgroup->host, cgroup->name, !hopeless, err);
        }
        cgroup_release(cgroup);
        return code;
}

int cgroup_destroy_by_name(const struct cgroup_host *host, const char *name, struct err *err) {
        struct cgroup cgroup;
        return cgroup_adopt(host, name, &cgroup, err) < 0 ? -1 : cgroup_destroy(&cgroup, err);
}
