/* System calls that older C libraries (Ubuntu 22.04's glibc 2.35) have no wrapper for. Each is the plain call: -1 and
 * errno on failure. */
#pragma once

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MOUNT_ATTR_NOSYMFOLLOW
#define MOUNT_ATTR_NOSYMFOLLOW 0x00200000
#endif

static inline int sys_open_tree(int dir_fd, const char *path, unsigned flags) {
        return (int) syscall(SYS_open_tree, dir_fd, path, flags);
}

static inline int sys_move_mount(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
        return (int) syscall(SYS_move_mount, from_fd, from, to_fd, to, flags);
}

static inline int sys_fsopen(const char *type, unsigned flags) {
        return (int) syscall(SYS_fsopen, type, flags);
}

static inline int sys_fsconfig(int fd, unsigned command, const char *key, const void *value, int aux) {
        return (int) syscall(SYS_fsconfig, fd, command, key, value, aux);
}

static inline int sys_fsmount(int fd, unsigned flags, unsigned attributes) {
        return (int) syscall(SYS_fsmount, fd, flags, attributes);
}

static inline int sys_mount_setattr(int dir_fd, const char *path, unsigned flags, struct mount_attr *attributes) {
        return (int) syscall(SYS_mount_setattr, dir_fd, path, flags, attributes, sizeof(*attributes));
}

static inline int sys_pivot_root(const char *new_root, const char *put_old) {
        return (int) syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_openat2(int dir_fd, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve) {
        struct open_how how = { .flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve };
        return (int) syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
}

static inline pid_t sys_clone3(struct clone_args *args) {
        return (pid_t) syscall(SYS_clone3, args, sizeof(*args));
}

static inline int sys_pidfd_send_signal(int pidfd, int signal_number) {
        return (int) syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0);
}

/* Queries of a pidfd (Linux 6.11 and 6.13): they take a tenth of the time of reading /proc. Older kernels refuse them,
 * and their headers lack them. */
struct sys_pidfd_info {
        uint64_t mask, cgroup_id;
        uint32_t pid, rest[11];
};
_Static_assert(sizeof(struct sys_pidfd_info) == 64, "as in linux/pidfd.h");

static inline pid_t sys_pidfd_get_pid(int pidfd) {
        struct sys_pidfd_info info = { .mask = 1 };
        return ioctl(pidfd, _IOWR(0xff, 11, struct sys_pidfd_info), &info) < 0 ? -1 : (pid_t) info.pid;
}

static inline int sys_pidfd_get_pid_namespace(int pidfd) {
        return ioctl(pidfd, _IO(0xff, 5), 0);
}

/* Scheduling by deadline. glibc has a wrapper and the struct since 2.41. */
struct sys_sched_attr {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
};
_Static_assert(sizeof(struct sys_sched_attr) == 48, "the first version of sched_attr");

static inline int sys_sched_setattr(pid_t pid, const struct sys_sched_attr *attributes) {
        return (int) syscall(SYS_sched_setattr, pid, attributes, 0);
}

/* The mount that `path` is the root of (Linux 6.8), or 0: it is the root of none, or the kernel cannot tell. Headers of
 * older systems have a shorter struct statx, and musl has none. */
struct sys_statx {
        uint32_t mask, block_size;
        uint64_t attributes, rest[16], mount_id, more[13];
};
_Static_assert(sizeof(struct sys_statx) == 256, "as the kernel has it");

static inline uint64_t sys_mount_id(const char *path) {
        enum { UNIQUE_MOUNT_ID = 0x4000, IS_MOUNT_ROOT = 0x2000 };
        struct sys_statx status = { 0 };
        if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, UNIQUE_MOUNT_ID, &status) < 0)
                return 0;
        return status.mask & UNIQUE_MOUNT_ID && status.attributes & IS_MOUNT_ROOT ? status.mount_id : 0;
}

/* How many mounts lie below this one, at most 1 (Linux 6.8). */
static inline int sys_list_mounts(uint64_t mount_id) {
        enum { LIST_MOUNTS = 458 }; /* on every architecture */
        struct {
                uint32_t size, spare;
                uint64_t mount_id, after;
        } request = { .size = sizeof(request), .mount_id = mount_id };
        uint64_t found;
        return (int) syscall(LIST_MOUNTS, &request, &found, 1, 0);
}
