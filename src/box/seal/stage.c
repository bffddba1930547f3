/* The sealing of a box: one table of steps in order, each of them fatal.
 *
 * Theory of operation. The parent (box.c) clones this child into new namespaces and holds the other end of sync_fd. The
 * child prepares what needs no identity, waits for one byte (its ids are mapped), builds the file system with the
 * capabilities it has in its own user namespace, enters its control groups, locks everything behind a second user
 * namespace, gives up every privilege, and becomes the agent. If a step fails the child writes a
 * struct err and exits; the parent undoes the rest. No byte of tenant code runs before the last row of the table. */
#include "box/seal/stage.h"

#include <errno.h>
#include <grp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/seal/landlock.h"
#include "box/seal/privilege.h"
#include "box/seal/seccomp.h"
#include "box/seal/users.h"

enum { AGENT_CONTROL_FD = 3, PROXY_BACKLOG = 128 };

static int wait_for_parent(const struct stage *stage, struct err *err) {
        char go;
        int code = fd_read_exactly(stage->fds->sync_fd, &go, 1);
        return code < 0 ? err_set(err, ERR_GONE, "the process that requested this box has ended") : 0;
}

static int step_detach(struct stage *stage, struct err *err) {
        (void) stage;
        (void) umask(022);
        return setsid() < 0 ? err_sys(err, errno, "leaving the session of the caller") : 0;
}

/* As the box's own user: the kernel allows two hundred keys to one user, and every box has a keyring. */
static int step_keyring(struct stage *stage, struct err *err) {
        (void) stage;
        int code = privilege_join_fresh_keyring();
        if (code == -EDQUOT)
                return err_set(err, ERR_LIMIT,
                               "this user has as many keys as the kernel allows, and a box needs one: "
                               "end some boxes, or raise kernel.keys.maxkeys (sysctl)");
        return code < 0 ? err_sys(err, -code, "joining a fresh keyring") : 0;
}

static int step_identity(struct stage *stage, struct err *err) {
        if (wait_for_parent(stage, err) < 0)
                return -1;
        if (stage->drop_groups && setgroups(0, NULL) < 0)
                return err_sys(err, errno, "giving up supplementary groups");
        /* Uid 0 is not mapped, so the capabilities that the set-up needs outlive this change of ids. In a box with
         * users it is, and what is built here belongs to it. */
        uid_t uid = stage->spec->users ? BOX_ROOT_UID : BOX_UID;
        gid_t gid = stage->spec->users ? BOX_ROOT_UID : BOX_GID;
        if (setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
                return err_sys(err, errno, "becoming the user of the box");
        return 0;
}

static int step_name_and_loopback(struct stage *stage, struct err *err) {
        static const char name[] = "sandbox";
        if (sethostname(name, sizeof(name) - 1) < 0 || setdomainname("", 0) < 0)
                return err_sys(err, errno, "naming the box");
        if (stage->spec->given_network)
                return 0;
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
                return err_sys(err, errno, "bringing up the loopback interface");
        return 0;
}

/* A socket belongs to the network namespace that it was made in: a process that accepts on it from outside needs no way
 * into the box, and the box has neither a route nor an address of the host. */
static int step_listen(struct stage *stage, struct err *err) {
        if (stage->fds->listener_fd < 0)
                return 0;
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        const struct sockaddr_in address = { .sin_family = AF_INET,
                                             .sin_port = htons(BOX_PROXY_PORT),
                                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        if (fd < 0 || bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ||
            listen(fd, PROXY_BACKLOG) < 0)
                return err_sys(err, errno, "listening for the proxy");
        int code = fd_passing_send(stage->fds->listener_fd, "l", 1, &fd, 1, 0);
        return code < 0 ? err_sys(err, -code, "handing the proxy's socket out") : 0;
}

int stage_open_self(const struct stage *stage, const char *name, int flags) {
        _cleanup_fd_ int own_fd = stage->self_fd >= 0 ? -1 : open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd = openat(stage->self_fd >= 0 ? stage->self_fd : own_fd, name, flags | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static int write_self(const struct stage *stage, const char *name, const char *text) {
        _cleanup_fd_ int fd = stage_open_self(stage, name, O_WRONLY);
        return fd < 0 ? fd : fd_write_all(fd, text, strlen(text));
}

static int write_text_at(int dir_fd, const char *path, const char *text) {
        _cleanup_fd_ int fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* From here on only two more namespaces are made, by later steps: the second user namespace, and the one for control
 * groups. A tree that is not attached yet counts as a mount namespace too: steps below need one at a time, so the knob
 * stays open until the lock turns it down. */
static int step_no_more_namespaces(struct stage *stage, struct err *err) {
        static const struct {
                const char *name, *count;
        } bounds[] = {
                { "max_user_namespaces", "1" },   { "max_pid_namespaces", "0" }, { "max_net_namespaces", "0" },
                { "max_ipc_namespaces", "0" },    { "max_uts_namespaces", "0" }, { "max_time_namespaces", "0" },
                { "max_cgroup_namespaces", "1" },
        };
        if (stage->spec->without_proc)
                return 0; /* the host's /proc/sys cannot be written: only the filter forbids them, as the report says */
        _cleanup_fd_ int dir_fd = open("proc/sys/user", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir_fd < 0)
                return err_sys(err, errno, "opening /proc/sys/user");
        for (size_t i = 0; i < ELEMENTS(bounds); i++) {
                int code = write_text_at(dir_fd, bounds[i].name, bounds[i].count);
                if (code < 0 && !(code == -ENOENT && strstr(bounds[i].name, "time")))
                        return err_sys(err, -code, "closing %s", bounds[i].name);
        }
        stage->mount_bound_fd = openat(dir_fd, "max_mnt_namespaces", O_WRONLY | O_CLOEXEC);
        int code = stage->mount_bound_fd < 0 ? -errno : fd_write_all(stage->mount_bound_fd, "2", 1);
        return code < 0 ? err_sys(err, -code, "closing max_mnt_namespaces") : 0;
}

static int step_cgroup_namespace(struct stage *stage, struct err *err) {
        if (cgroup_enter(stage->cgroup, err) < 0)
                return -1;
        /* Made after the process entered its groups: a namespace made before would show the host's path. */
        if (unshare(CLONE_NEWCGROUP) < 0)
                return err_sys(err, errno, "hiding the control groups");
        return 0;
}

/* A process with capabilities here can undo the mounts that were attached with capabilities here (seen: a read-only
 * mount was made writable again). The mount namespace belongs to this user namespace. From a second one, below it, no
 * capability reaches back: nothing can be mounted, changed or unmounted any more. Nor can the mounts be copied to
 * another mount namespace: none can be created any more. */
static int step_lock_mounts(struct stage *stage, struct err *err) {
        /* At the beginning: the kernel ignores what is written anywhere else. */
        if (!stage->spec->without_proc && pwrite(stage->mount_bound_fd, "0", 1, 0) != 1)
                return err_sys(err, errno, "closing max_mnt_namespaces");
        fd_close(&stage->mount_bound_fd);
        if (stage->spec->users)
                return users_lock(stage, err);
        if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || unshare(CLONE_NEWUSER) < 0)
                return err_sys(err, errno, "locking the mounts");
        int code = write_self(stage, "setgroups", "deny");
        if (code == 0)
                code = write_self(stage, "uid_map", "1000 1000 1");
        if (code == 0)
                code = write_self(stage, "gid_map", "1000 1000 1");
        return code < 0 ? err_sys(err, -code, "mapping the user of the box") : 0;
}

static int step_rlimits(struct stage *stage, struct err *err) {
        int code = privilege_set_rlimits(&stage->spec->limits, stage->has_memory_cgroup, stage->has_pids_cgroup);
        return code < 0 ? err_sys(err, -code, "setting resource limits") : 0;
}

/* Inherited by everything that the agent starts, which could not do it. */
static int step_offer_to_oom(struct stage *stage, struct err *err) {
        if (stage->spec->without_proc)
                return 0;
        int code = privilege_offer_to_oom();
        return code < 0 ? err_sys(err, -code, "being the first to go when memory runs out") : 0;
}

static int step_drop_privileges(struct stage *stage, struct err *err) {
        int code = stage->spec->users ? privilege_keep_for_users() : privilege_drop_all();
        return code < 0 ? err_sys(err, -code, "giving up privileges") : 0;
}

static int step_landlock(struct stage *stage, struct err *err) {
        if (landlock_abi() == 0)
                return 0; /* the report says so; the mount namespace is the wall, this is the second one */
        const char *writable[4 + USERS_PLACES_MAX + 64] = { BOX_WORKSPACE, "/tmp", BOX_HOME, "/dev/shm" };
        size_t n = 4;
        if (stage->spec->users)
                n += users_places(&writable[n]);
        for (size_t i = 0; i < stage->spec->n_mounts && n < ELEMENTS(writable); i++)
                if (stage->spec->mounts[i].writable)
                        writable[n++] = stage->spec->mounts[i].destination;
        int code = landlock_restrict(writable, n);
        return code < 0 ? err_sys(err, -code, "restricting file access with Landlock") : 0;
}

/* Closes all descriptors but the agent's socket, the agent itself, and the one to report a failure. */
static int step_descriptors(struct stage *stage, struct err *err) {
        enum { ABOVE = 6 }; /* the numbers that are placed; a higher one could be above the limit of open files */
        static int keep[3];
        const struct stage_fds *fds = stage->fds;
        const int wanted[3] = { fds->control_fd, fds->agent_fd, fds->sync_fd };
        for (size_t i = 0; i < 3; i++) {
                keep[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, ABOVE);
                if (keep[i] < 0)
                        return err_sys(err, errno, "keeping a descriptor");
        }
        _cleanup_fd_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < 3; i++)
                if (null_fd < 0 || dup2(null_fd, i) < 0)
                        return err_sys(err, errno, "opening /dev/null");
        if (dup2(keep[0], AGENT_CONTROL_FD) < 0 || dup3(keep[1], 4, O_CLOEXEC) < 0 || dup3(keep[2], 5, O_CLOEXEC) < 0)
                return err_sys(err, errno, "placing descriptors");
        if (null_fd <= 5)
                null_fd = -1; /* it was one of the numbers just taken over */
        if (syscall(SYS_close_range, 6, ~0u, 0) < 0)
                return err_sys(err, errno, "closing descriptors");
        static struct stage_fds sealed_fds;
        sealed_fds = (struct stage_fds) {
                .control_fd = AGENT_CONTROL_FD, .agent_fd = 4, .sync_fd = 5, .listener_fd = -1, .template_fd = -1
        };
        stage->fds = &sealed_fds;
        return 0;
}

static int step_seccomp(struct stage *stage, struct err *err) {
        (void) stage;
        int code = seccomp_install();
        return code < 0 ? err_sys(err, -code, "installing the system-call filter") : 0;
}

static int step_become_agent(struct stage *stage, struct err *err) {
        char *const argv[] = { (char[]) { "agent" }, (char[]) { "3" }, stage->spec->users ? (char[]) { "users" } : NULL,
                               NULL };
        char *const envp[] = { NULL };
        (void) syscall(SYS_execveat, stage->fds->agent_fd, "", argv, envp, AT_EMPTY_PATH);
        return err_sys(err, errno, "starting the agent");
}

static const struct {
        const char *name;
        int (*run)(struct stage *stage, struct err *err);
        const char *reason; /* the reason for its place in the order */
} steps[] = {
        { "detach", step_detach, "first: the terminal of the caller is given up before anything is built" },
        { "identity", step_identity, "all below is made by the box's own user, never by root" },
        { "keyring", step_keyring, "counted for the box's own user; nothing of the caller's keys is in reach" },
        { "root", rootfs_root, "mounts are private before the box makes its first one" },
        { "image", rootfs_image, "read-only trees that the parent opened and checked" },
        { "etc", rootfs_etc, "after the image, whose /etc it may cover" },
        { "devices", rootfs_devices, "from descriptors checked before any tenant could swap them" },
        { "proc", rootfs_proc, "of the box's own processes; before its knobs are turned and locked" },
        { "namespaces", step_no_more_namespaces, "while /proc/sys can still be written" },
        { "masks", rootfs_masks, "after /dev, whose null covers what must not be read" },
        { "writable", rootfs_writable, "the only places that can be written, all bounded" },
        { "mounts", rootfs_mounts, "what the caller asked for, after what it must not hide" },
        { "code", rootfs_code, "the root is still writable" },
        { "name", step_name_and_loopback, "needs the capabilities that go away below" },
        { "listen", step_listen, "in the box's own network, before the last descriptor to hand it out by is closed" },
        { "pivot", rootfs_close, "the host's root goes away while we can still detach it" },
        { "inodes", rootfs_inodes, "when only the box's own mounts are left to look through" },
        { "groups", step_cgroup_namespace, "limits hold before the first tenant byte" },
        { "lock", step_lock_mounts, "after the last mount: none of them can be undone any more" },
        { "descriptors", step_descriptors, "before the walls, which must not find a way around them" },
        { "rlimits", step_rlimits, "after the ids, which they count by, and after descriptors above their bound" },
        { "oom", step_offer_to_oom, "while /proc may still be written to" },
        { "privileges", step_drop_privileges, "after everything that needs one" },
        { "landlock", step_landlock, "needs no_new_privs, and paths as the box sees them" },
        { "seccomp", step_seccomp, "last: it forbids most of the calls made above" },
        { "agent", step_become_agent, "a program of its own: nothing of our memory stays" },
};

/* A program of the tests, which is never installed, leaves out one row: some test must fail then
 * (tests/box/test_sealing_rows.py). In any other build there is no such thing. */
#ifdef STAGE_LEAVE_OUT
static bool is_left_out(const char *name) {
        const char *left_out = getenv("GLOVEBOX_LEAVE_OUT");
        return left_out && strcmp(left_out, name) == 0;
}
#else
#define is_left_out(name) false
#endif

void stage_run(struct stage *stage) {
        struct err err = { 0 };
        for (size_t i = 0; i < ELEMENTS(steps); i++) {
                if (is_left_out(steps[i].name) || steps[i].run(stage, &err) == 0)
                        continue;
                (void) err_prefix(&err, "box step \"%s\"", steps[i].name);
                break;
        }
        (void) fd_write_all(stage->fds->sync_fd, &err, sizeof(err));
        _exit(125);
}
