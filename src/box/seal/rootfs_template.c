#include "box/seal/rootfs_template.h"

#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"

#define PLACE "/template"

static int kept_fd = -1; /* -1: attached at its place, or there is none */

int rootfs_template_copy(void) {
        const unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
        int tree = kept_fd >= 0 ? sys_open_tree(kept_fd, "", flags | AT_EMPTY_PATH)
                                : sys_open_tree(AT_FDCWD, PLACE, flags);
        return tree < 0 ? -errno : tree;
}

/* Every box begins with a copy of the supervisor's mount namespace, which it then leaves. A template that is not
 * attached there is not copied that way. Only since Linux 6.15 can such a tree be copied at all: older kernels keep it
 * attached. */
static void template_detach(void) {
        kept_fd = rootfs_template_copy();
        _cleanup_fd_ int copy = kept_fd < 0 ? -1 : rootfs_template_copy();
        if (copy >= 0)
                (void) umount2(PLACE, MNT_DETACH);
        else
                fd_close(&kept_fd);
}

/* The file systems themselves, not only their mounts: then no mount of them, wherever it is, can be written to. */
static int template_freeze(struct stage *stage, struct err *err) {
        (void) stage;
        static const char *const made[] = { PLACE "/dev", PLACE };
        for (size_t i = 0; i < ELEMENTS(made); i++)
                if (mount(NULL, made[i], NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
                        return err_sys(err, errno, "making %s read-only", made[i]);
        return 0;
}

int rootfs_template_make(const struct box_spec *spec, const struct stage_fds *fds, struct err *err) {
        struct stage stage = { .spec = spec, .fds = fds, .root_fd = -1, .self_fd = -1 };
        int (*const steps[])(struct stage *, struct err *) = { rootfs_image,      rootfs_etc,    rootfs_device_nodes,
                                                               rootfs_processors, rootfs_places, template_freeze };
        fd_close(&kept_fd);
        (void) umount2(PLACE, MNT_DETACH);
        if (mkdir(PLACE, 0755) < 0 && errno != EEXIST)
                return err_sys(err, errno, "making a place for the template");
        int code = rootfs_root_at(&stage, PLACE, err);
        for (size_t i = 0; i < ELEMENTS(steps) && code == 0; i++)
                code = steps[i](&stage, err);
        fd_close(&stage.root_fd);
        if (code < 0) {
                (void) umount2(PLACE, MNT_DETACH);
                return err_prefix(err, "the boxes' template");
        }
        template_detach();
        return 0;
}
