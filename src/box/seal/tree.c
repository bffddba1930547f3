#include "box/seal/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "box/seal/mount_point.h"

static int clone_with(int fd, struct mount_attr *attributes) {
        _cleanup_fd_ int tree =
                sys_open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
        if (tree < 0)
                return -errno;
        if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, attributes) < 0)
                return -errno;
        return take_fd(&tree);
}

int tree_clone(int fd, bool writable) {
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
        if (!writable)
                attributes.attr_set |= MOUNT_ATTR_RDONLY;
        return clone_with(fd, &attributes);
}

/* With `for_root`, root may create files through the mount too; on disk they belong to another user. */
static int write_map(pid_t pid, const char *file, unsigned inside, unsigned outside, bool for_root) {
        char path[64], lines[96];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        int length = for_root ? snprintf(lines, sizeof(lines), "%u %u 1\n%u 0 1", inside, outside, inside ? 0 : outside)
                              : snprintf(lines, sizeof(lines), "%u %u 1", inside, outside);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, lines, (size_t) length);
}

/* A user namespace that exists only to describe a mapping; the process in it ends before this returns. */
static int make_mapping(uid_t owner_uid, gid_t owner_gid, uid_t box_uid, gid_t box_gid, bool for_root) {
        int pidfd = -1;
        struct clone_args args = { .flags = CLONE_NEWUSER | CLONE_PIDFD,
                                   .exit_signal = SIGCHLD,
                                   .pidfd = (uint64_t) (uintptr_t) &pidfd };
        pid_t parent = getpid(), pid = sys_clone3(&args);
        if (pid < 0)
                return -errno;
        if (pid == 0) {
                /* Holds no resources, and ends with its parent, also if that ended before the prctl. */
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void) syscall(SYS_close_range, 0, ~0u, 0);
                while (getppid() == parent)
                        (void) pause();
                _exit(EXIT_SUCCESS);
        }
        _cleanup_fd_ int owned_pidfd = pidfd;
        (void) owned_pidfd;
        int code = write_map(pid, "uid_map", owner_uid, box_uid, for_root);
        if (code == 0)
                code = write_map(pid, "gid_map", owner_gid, box_gid, for_root);
        _cleanup_fd_ int namespace_fd = -1;
        if (code == 0) {
                char path[64];
                (void) snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) pid);
                namespace_fd = open(path, O_RDONLY | O_CLOEXEC);
                if (namespace_fd < 0)
                        code = -errno;
        }
        (void) sys_pidfd_send_signal(pidfd, SIGKILL);
        (void) waitpid(pid, NULL, 0);
        return code < 0 ? code : take_fd(&namespace_fd);
}

static int clone_mapped(int fd, bool writable, uid_t owner_uid, gid_t owner_gid, uid_t box_uid, gid_t box_gid,
                        bool for_root) {
        _cleanup_fd_ int mapping = make_mapping(owner_uid, owner_gid, box_uid, box_gid, for_root);
        if (mapping < 0)
                return mapping;
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_IDMAP,
                                         .userns_fd = (uint32_t) mapping };
        if (!writable)
                attributes.attr_set |= MOUNT_ATTR_RDONLY;
        return clone_with(fd, &attributes);
}

int tree_clone_mapped(int fd, bool writable, uid_t owner_uid, gid_t owner_gid, uid_t box_uid, gid_t box_gid) {
        return clone_mapped(fd, writable, owner_uid, owner_gid, box_uid, box_gid, false);
}

int tree_clone_served(int fd, bool writable, uid_t box_uid, gid_t box_gid) {
        struct stat status;
        if (fstat(fd, &status) < 0)
                return -errno;
        int tree = clone_mapped(fd, writable, status.st_uid, status.st_gid, box_uid, box_gid, true);
        return (tree == -EINVAL || tree == -EPERM) && !writable ? tree_clone(fd, false) : tree;
}

int tree_clone_owned(int fd, bool writable, bool leased, uid_t box_uid, gid_t box_gid) {
        struct stat status;
        if (!leased)
                return tree_clone(fd, writable);
        if (fstat(fd, &status) < 0)
                return -errno;
        int tree = tree_clone_mapped(fd, writable, status.st_uid, status.st_gid, box_uid, box_gid);
        if ((tree == -EINVAL || tree == -EPERM) && !writable)
                return tree_clone(fd, false);
        return tree;
}

int tree_explain(int code, const char *source, struct err *err) {
        if (code == -EINVAL)
                return err_set(err, ERR_UNSUPPORTED,
                               "%.300s: its file system has no id-mapped mounts on this kernel (tmpfs has them since "
                               "Linux 6.3), "
                               "so files in it could not stay yours; use a directory on ext4, xfs or btrfs, or mount "
                               "it read-only",
                               source);
        return err_sys(err, -code, "mounting %.300s", source);
}

int tree_clone_device(const char *path, unsigned major_number, unsigned minor_number) {
        _cleanup_fd_ int fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
        struct stat status;
        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;
        if (!S_ISCHR(status.st_mode) || status.st_rdev != makedev(major_number, minor_number))
                return -ENODEV;
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC };
        return clone_with(fd, &attributes);
}

int tree_make_tmpfs(uint64_t bytes, uint64_t files, uid_t uid, gid_t gid, unsigned mode) {
        _cleanup_fd_ int context = sys_fsopen("tmpfs", FSOPEN_CLOEXEC);
        if (context < 0)
                return -errno;
        char text[5][32];
        (void) snprintf(text[0], sizeof(text[0]), "%" PRIu64, bytes);
        (void) snprintf(text[1], sizeof(text[1]), "%" PRIu64, files);
        (void) snprintf(text[2], sizeof(text[2]), "%o", mode);
        (void) snprintf(text[3], sizeof(text[3]), "%u", uid);
        (void) snprintf(text[4], sizeof(text[4]), "%u", gid);
        static const char *const keys[] = { "size", "nr_inodes", "mode", "uid", "gid" };
        for (size_t i = 0; i < 5; i++)
                if (sys_fsconfig(context, FSCONFIG_SET_STRING, keys[i], text[i], 0) < 0)
                        return -errno;
        if (sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        int tree = sys_fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        return tree < 0 ? -errno : tree;
}

static int forbid_writing(int tree_fd) {
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY };
        return sys_mount_setattr(tree_fd, "", AT_EMPTY_PATH, &attributes) < 0 ? -errno : 0;
}

int tree_make_empty(uid_t uid, gid_t gid) {
        _cleanup_fd_ int tree = tree_make_tmpfs(4096, 1, uid, gid, 0500);
        int code = tree < 0 ? tree : forbid_writing(tree);
        return code < 0 ? code : take_fd(&tree);
}

int tree_make_with_file(const char *name, const void *bytes, size_t size, uid_t uid, gid_t gid) {
        enum { PAGE = 4096, FILES = 2 }; /* itself and the file */
        _cleanup_fd_ int tree = tree_make_tmpfs(size + PAGE, FILES, uid, gid, 0755);
        int code = tree < 0 ? tree : mount_point_write_in(tree, name, bytes, size);
        if (code == 0 && fchownat(tree, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
                code = -errno;
        if (code == 0)
                code = forbid_writing(tree);
        return code < 0 ? code : take_fd(&tree);
}
