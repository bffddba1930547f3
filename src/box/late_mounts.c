#include "box/late_mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "box/seal/mount_point.h"
#include "box/seal/tree.h"

enum { PLACES = 3 };

/* True if a mount can appear there after the box is ready. */
static bool late_mounts_has_place(const char *destination) {
        static const char *const places[PLACES] = { BOX_WORKSPACE, BOX_DATA_DIR, BOX_CODE_DIR };
        for (size_t i = 0; i < PLACES; i++)
                if (strcmp(destination, places[i]) == 0)
                        return true;
        return false;
}

/* One tree, and what covers the links of a project in it; -1: it has none. */
struct late_mount {
        const struct box_mount *mount;
        int cover_fd;
};

/* Made outside of the box: in the box's mount namespace no further tree can be made. */
static int make_cover(const struct box_mount *mount, uid_t uid, gid_t gid) {
        struct stat status;
        bool has_links =
                fstatat(mount->tree_fd, PROJECT_LINKS, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
        return has_links ? tree_make_empty(uid, gid) : -1;
}

/* Below a place that belongs to the box's root, which no code of an image can write to; no link is followed anyway. */
static int attach_at(int root_fd, const char *path, int tree_fd) {
        _cleanup_fd_ int target =
                sys_openat2(root_fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        return target < 0 ? -errno : mount_point_put(tree_fd, target);
}

static int attach_one(int root_fd, const struct late_mount *late) {
        const char *place = late->mount->destination + 1;
        char links[64];
        int code = attach_at(root_fd, place, late->mount->tree_fd);
        if (code < 0 || late->cover_fd < 0)
                return code;
        (void) snprintf(links, sizeof(links), "%s/" PROJECT_LINKS, place);
        return attach_at(root_fd, links, late->cover_fd);
}

static int join_and_attach(int box_pidfd, const struct late_mount *lates, size_t n) {
        if (setns(box_pidfd, CLONE_NEWNS) < 0)
                return -errno;
        _cleanup_fd_ int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int code = root_fd < 0 ? -errno : 0;
        for (size_t i = 0; i < n && code == 0; i++)
                code = attach_one(root_fd, &lates[i]);
        return code;
}

/* A child does it, since a process cannot return from another mount namespace to its old root. */
static int attach_in_child(int box_pidfd, const struct late_mount *lates, size_t n, struct err *err) {
        int status;
        pid_t pid = fork();
        if (pid < 0)
                return err_sys(err, errno, "starting a process");
        if (pid == 0)
                _exit(-join_and_attach(box_pidfd, lates, n));
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return err_sys(err, errno, "waiting for the mounts of a box");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        return err_sys(err, WIFEXITED(status) ? WEXITSTATUS(status) : EINTR, "mounting in a box that is ready");
}

int late_mounts_attach(int box_pidfd, const struct box_mount *mounts, size_t n_mounts, uid_t uid, gid_t gid,
                       struct err *err) {
        struct late_mount lates[PLACES];
        size_t n = 0;
        int code = 0;
        for (size_t i = 0; i < n_mounts && code == 0; i++) {
                if (n == PLACES || !mounts[i].is_directory || !late_mounts_has_place(mounts[i].destination))
                        code = err_set(err, ERR_UNSUPPORTED, "a box that is ready has no place for %s",
                                       mounts[i].destination);
                else
                        lates[n++] = (struct late_mount) { &mounts[i], make_cover(&mounts[i], uid, gid) };
                if (code == 0 && lates[n - 1].cover_fd < -1)
                        code = err_sys(err, -lates[n - 1].cover_fd, "covering " PROJECT_LINKS);
        }
        if (code == 0)
                code = attach_in_child(box_pidfd, lates, n, err);
        for (size_t i = 0; i < n; i++)
                fd_close(&lates[i].cover_fd);
        return code;
}
