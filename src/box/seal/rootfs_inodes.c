/* Inodes of the box's own for /usr: an overlay of the image's, with nothing above it.
 *
 * Locks (flock, fcntl) belong to inodes. On files that the host and all boxes share, a box could use them to send bits
 * to another box, or to block a program of the host that locks the same file. Files of an overlay have inodes that no
 * other mount has; their pages are still the ones in the host's cache. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/seal/stage.h"

#define TREE "/usr"

enum { MOUNTS_MAX = 256 << 10 };

/* An overlay would hide the mounts below. 1: there is something. The text of all mounts of a box takes 60 µs to make,
 * so the kernel is asked for a list first. */
static int has_mounts_below(const struct stage *stage) {
        uint64_t mount_id = sys_mount_id(TREE);
        int n = mount_id ? sys_list_mounts(mount_id) : -1;
        if (n >= 0)
                return n;
        _cleanup_fd_ int fd = stage_open_self(stage, "mountinfo", O_RDONLY);
        _cleanup_free_ char *text = NULL;
        int code = fd < 0 ? fd : fd_read_to_end(fd, MOUNTS_MAX, &text, NULL);
        return code < 0 ? code : strstr(text, " " TREE "/") != NULL;
}

static int make_overlay(void) {
        static const char lower[] = TREE ":" STAGE_EMPTY;
        _cleanup_fd_ int context = sys_fsopen("overlay", FSOPEN_CLOEXEC);
        if (context < 0 || sys_fsconfig(context, FSCONFIG_SET_STRING, "lowerdir", lower, 0) < 0 ||
            sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        int tree = sys_fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        return tree < 0 ? -errno : tree;
}

/* Linux before 5.11, a kernel without overlays, some security modules and some file systems. */
static bool is_not_to_be_had(int code) {
        return code == -ENODEV || code == -EPERM || code == -EACCES || code == -EINVAL || code == -ELOOP ||
               code == -EOPNOTSUPP;
}

/* Without an overlay the image's own inodes are shown. A refusal counts as the host's if the same call is refused
 * again. */
int rootfs_inodes(struct stage *stage, struct err *err) {
        struct stat status;
        int code = lstat(TREE, &status) < 0 ? -errno : 0;
        if (code == -ENOENT || (code == 0 && !S_ISDIR(status.st_mode)))
                return 0; /* an image without one */
        if (code == 0)
                code = has_mounts_below(stage);
        if (code > 0)
                return 0;
        int tree = code < 0 ? code : make_overlay();
        if (code == 0 && is_not_to_be_had(tree)) {
                tree = make_overlay();
                if (is_not_to_be_had(tree))
                        return 0;
        }
        _cleanup_fd_ int owned = tree;
        if (tree < 0 || sys_move_mount(owned, "", AT_FDCWD, TREE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return err_sys(err, tree < 0 ? -tree : errno, "making inodes of the box's own for " TREE);
        return 0;
}
