#include "box/host/host_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/cgroup/cgroup_file.h"
#include "box/host/container_view.h"

enum { TRIAL_WAIT_MS = 20000 };

/* <linux/mount.h> and <sys/mount.h> cannot both be included on every system, so what we need of them stands here. */
#define TRIAL_TREE_CLONE 1u
#define TRIAL_IDMAP 0x00100000u

struct trial_mount_attr {
        uint64_t attr_set, attr_clr, propagation, userns_fd;
};

static struct host_trial trial_failed(enum host_trial_step step, int code) {
        return (struct host_trial) { .step = (int) step, .sys_errno = code < 0 ? -code : errno };
}

static void wait_for(pid_t pid) {
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
}

/* In the new pid namespace, as its first process. */
static struct host_trial try_mounts(void) {
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("glovebox", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k") < 0)
                return trial_failed(TRIAL_MOUNTS, 0);
        if (mkdir("/tmp/proc", 0700) < 0 ||
            mount("proc", "/tmp/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
                return trial_failed(TRIAL_PROC, 0);
        return (struct host_trial) { .step = TRIAL_PASSED };
}

static struct host_trial try_in_child(uid_t uid, gid_t gid, int result_fd) {
        char map[64];
        if (unshare(CLONE_NEWUSER) < 0)
                return trial_failed(TRIAL_USER_NAMESPACE, 0);
        (void) cgroup_file_write(AT_FDCWD, "/proc/self/setgroups", "deny");
        (void) snprintf(map, sizeof(map), "0 %u 1", uid);
        int code = cgroup_file_write(AT_FDCWD, "/proc/self/uid_map", map);
        (void) snprintf(map, sizeof(map), "0 %u 1", gid);
        if (code == 0)
                code = cgroup_file_write(AT_FDCWD, "/proc/self/gid_map", map);
        if (code < 0)
                return trial_failed(TRIAL_ID_MAP, code);
        if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0)
                return trial_failed(TRIAL_NAMESPACES, 0);
        pid_t pid = fork();
        if (pid < 0)
                return trial_failed(TRIAL_NAMESPACES, 0);
        if (pid == 0) {
                struct host_trial result = try_mounts();
                (void) fd_write_all(result_fd, &result, sizeof(result));
                _exit(0);
        }
        wait_for(pid);
        _exit(0); /* the grandchild has answered */
}

struct host_trial host_try_namespaces(void) {
        int pipe_fds[2];
        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return trial_failed(TRIAL_FORK, 0);
        uid_t uid = geteuid();
        gid_t gid = getegid();
        pid_t pid = fork();
        if (pid == 0) {
                struct host_trial result = try_in_child(uid, gid, pipe_fds[1]);
                (void) fd_write_all(pipe_fds[1], &result, sizeof(result));
                _exit(0);
        }
        struct host_trial result = trial_failed(TRIAL_FORK, pid < 0 ? 0 : -ETIMEDOUT);
        fd_close(&pipe_fds[1]);
        if (pid > 0) {
                struct pollfd ready = { .fd = pipe_fds[0], .events = POLLIN };
                if (poll(&ready, 1, TRIAL_WAIT_MS) <= 0)
                        (void) kill(pid, SIGKILL);
                else if (fd_read_exactly(pipe_fds[0], &result, sizeof(result)) < 0)
                        result = trial_failed(TRIAL_FORK, -EIO);
                wait_for(pid);
        }
        fd_close(&pipe_fds[0]);
        return result;
}

bool host_refuses_proc(void) {
        static enum { UNKNOWN, REFUSES, GIVES } answer;
        if (answer == UNKNOWN)
                answer = container_view_has_covers() && host_try_namespaces().step == TRIAL_PROC ? REFUSES : GIVES;
        return answer == REFUSES;
}

/* A child that owns a user namespace until we are done with it; returns a descriptor of the namespace. */
static int open_mapped_namespace(void) {
        int ready[2], hold[2];
        if (pipe2(ready, O_CLOEXEC) < 0)
                return -errno;
        if (pipe2(hold, O_CLOEXEC) < 0) {
                int code = -errno;
                fd_close(&ready[0]);
                fd_close(&ready[1]);
                return code;
        }
        pid_t pid = fork();
        if (pid == 0) {
                char byte = unshare(CLONE_NEWUSER) < 0 ? (char) errno : 0;
                fd_close(&hold[1]);
                (void) fd_write_all(ready[1], &byte, 1);
                (void) fd_read_exactly(hold[0], &byte, 1); /* until the other end is closed */
                _exit(0);
        }
        int code = pid < 0 ? -errno : 0;
        char byte = 0, path[64];
        fd_close(&ready[1]);
        fd_close(&hold[0]);
        if (code == 0 && (code = fd_read_exactly(ready[0], &byte, 1)) == 0)
                code = -byte;
        if (code == 0) {
                (void) snprintf(path, sizeof(path), "/proc/%d/uid_map", (int) pid);
                code = cgroup_file_write(AT_FDCWD, path, "0 100000 1");
                (void) snprintf(path, sizeof(path), "/proc/%d/gid_map", (int) pid);
                if (code == 0)
                        code = cgroup_file_write(AT_FDCWD, path, "0 100000 1");
        }
        if (code == 0) {
                (void) snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) pid);
                code = open(path, O_RDONLY | O_CLOEXEC);
                if (code < 0)
                        code = -errno;
        }
        fd_close(&ready[0]);
        fd_close(&hold[1]);
        if (pid > 0)
                wait_for(pid);
        return code;
}

int host_try_idmapped_mount(const char *path) {
        _cleanup_fd_ int userns_fd = open_mapped_namespace();
        if (userns_fd < 0)
                return userns_fd;
        _cleanup_fd_ int tree_fd = (int) syscall(SYS_open_tree, AT_FDCWD, path, TRIAL_TREE_CLONE | O_CLOEXEC);
        if (tree_fd < 0)
                return -errno;
        struct trial_mount_attr attr = { .attr_set = TRIAL_IDMAP, .userns_fd = (uint64_t) userns_fd };
        return syscall(SYS_mount_setattr, tree_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}
