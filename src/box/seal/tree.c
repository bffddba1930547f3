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
#include "box/spec.h"

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

/* The mapping of ids on disk to ids of a box. */
struct mapping {
        uid_t owner_uid, box_uid;
        gid_t owner_gid, box_gid;
        bool for_root; /* root may create files through the mount too; on disk they belong to another user */
        uid_t disk_id; /* of a box with users: what its id 0 is on disk; 0: there is only one user */
};

static int tree_write_map(pid_t pid, const char *file, unsigned inside, unsigned outside,
                          const struct mapping *mapping) {
        char path[64], lines[160];
        unsigned disk = mapping->disk_id, base = outside - BOX_UID;
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        int length = snprintf(lines, sizeof(lines), "%u %u 1", inside, outside);
        if (mapping->for_root)
                length = snprintf(lines, sizeof(lines), "%u %u 1\n%u 0 1", inside, outside, inside ? 0 : outside);
        if (disk)
                length = snprintf(lines, sizeof(lines), "%u %u 1\n%u %u %d\n%u %u %d", inside, outside, disk, base,
                                  BOX_UID, disk + BOX_UID + 1, outside + 1, BOX_IDS - BOX_UID - 1);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, lines, (size_t) length);
}

/* A user namespace that exists only to describe a mapping; the process in it ends before this returns. */
static int make_mapping(const struct mapping *mapping) {
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
        int code = tree_write_map(pid, "uid_map", mapping->owner_uid, mapping->box_uid, mapping);
        if (code == 0)
                code = tree_write_map(pid, "gid_map", mapping->owner_gid, mapping->box_gid, mapping);
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

static int clone_mapped(int fd, bool writable, const struct mapping *mapping) {
        _cleanup_fd_ int mapping_fd = make_mapping(mapping);
        if (mapping_fd < 0)
                return mapping_fd;
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_IDMAP,
                                         .userns_fd = (uint32_t) mapping_fd };
        if (!writable)
                attributes.attr_set |= MOUNT_ATTR_RDONLY;
        return clone_with(fd, &attributes);
}

/* As tree_clone, but files of owner_uid/owner_gid on disk appear as, and are created by, box_uid/box_gid. For a caller
 * with CAP_SYS_ADMIN over the file system; -EINVAL or -EPERM where the file system has no id-mapped mounts. */
static int tree_clone_mapped(int fd, bool writable, uid_t owner_uid, gid_t owner_gid, uid_t box_uid, gid_t box_gid) {
        const struct mapping mapping = {
                .owner_uid = owner_uid, .owner_gid = owner_gid, .box_uid = box_uid, .box_gid = box_gid
        };
        return clone_mapped(fd, writable, &mapping);
}

/* The owner of the directory is mapped to the box's user. */
static int clone_for_owner(int fd, bool writable, struct mapping mapping) {
        struct stat status;
        if (fstat(fd, &status) < 0)
                return -errno;
        mapping.owner_uid = status.st_uid;
        mapping.owner_gid = status.st_gid;
        return clone_mapped(fd, writable, &mapping);
}

int tree_clone_served(int fd, bool writable, uid_t box_uid, gid_t box_gid) {
        const struct mapping mapping = { .box_uid = box_uid, .box_gid = box_gid, .for_root = true };
        int tree = clone_for_owner(fd, writable, mapping);
        return (tree == -EINVAL || tree == -EPERM) && !writable ? tree_clone(fd, false) : tree;
}

int tree_clone_for_users(int fd, uid_t box_uid, gid_t box_gid, uid_t disk_id) {
        const struct mapping mapping = { .box_uid = box_uid, .box_gid = box_gid, .disk_id = disk_id };
        return clone_for_owner(fd, true, mapping);
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
