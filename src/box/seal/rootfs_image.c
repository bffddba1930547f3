/* The image of a box: read-only trees and links at the top of its root.
 *
 * Other things are mounted below these trees: the home directory, the kernel's files in /opt/glovebox, the mounts of
 * the caller. An image need not have a directory there, and nothing can be made in a read-only tree. So if a tree lacks
 * a mount point, a directory in the box's own root replaces it, and each entry of the tree is mounted into that
 * directory by itself. This is repeated downwards until the mount point can be created. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/seal/environment.h"
#include "box/seal/mount_point.h"
#include "box/seal/stage.h"
#include "box/seal/users.h"

#define OPENED "run/opened" /* where a tree lies while its entries are taken out of it */

enum { ENTRIES_MAX = 1024, NEEDED_MAX = IMAGE_TREES_MAX + 72 };

struct need {
        const char *path; /* absolute, inside the box */
        bool is_ours;     /* a link or file of the image in the way is left out; else it is an error */
};

struct opening {
        const struct stage *stage;
        struct need needs[NEEDED_MAX];
        size_t n_needs;
        struct err *err;
};

/* The rest of `path` below `directory`, without a slash before it; NULL when it does not lie below it. */
static const char *path_below(const char *path, const char *directory) {
        size_t size = strlen(directory);
        if (strncmp(path, directory, size) != 0 || path[size] != '/')
                return NULL;
        return path + size + strspn(path + size, "/");
}

static void opening_need(struct opening *opening, const char *path, bool is_ours) {
        if (opening->n_needs < NEEDED_MAX)
                opening->needs[opening->n_needs++] = (struct need) { path, is_ours };
}

static void list_needs(struct opening *opening) {
        const struct box_spec *spec = opening->stage->spec;
        opening_need(opening, BOX_HOME, true);
        if (*spec->image->python)
                opening_need(opening, BOX_EXTRA_PROGRAMS, true);
        if (!spec->image->own_etc && !spec->users) {
                opening_need(opening, "/etc/passwd", true);
                opening_need(opening, "/etc/group", true);
        }
        for (size_t i = 0; i < spec->image->n_trees; i++)
                opening_need(opening, spec->image->trees[i].path, true);
        for (size_t i = 0; i < spec->n_mounts; i++)
                opening_need(opening, spec->mounts[i].destination, false);
}

static bool is_there(int fd, const char *path) {
        _cleanup_fd_ int found = sys_openat2(fd, path, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        struct stat status;
        return found >= 0 && fstat(found, &status) == 0 && !S_ISLNK(status.st_mode);
}

static bool lacks_a_place(const struct opening *opening, int fd, const char *path) {
        for (size_t i = 0; i < opening->n_needs; i++) {
                const char *rest = path_below(opening->needs[i].path, path);
                if (rest && *rest && !is_there(fd, rest))
                        return true;
        }
        return false;
}

/* 1 if a mount point of Glovebox is at `path` or below; -1, with the reason, if one of the caller's is. */
static int stands_in_the_way(const struct opening *opening, const char *path, const char *what) {
        for (size_t i = 0; i < opening->n_needs; i++) {
                const struct need *needed = &opening->needs[i];
                if (!path_below(needed->path, path))
                        continue;
                if (needed->is_ours)
                        return 1;
                return err_set(opening->err, ERR_USAGE,
                               "cannot mount at %s: in the image %s is a %s; choose another destination", needed->path,
                               path, what);
        }
        return 0;
}

static int open_up(const struct opening *opening, int fd, const char *path);

static int show_directory(const struct opening *opening, int parent_fd, const char *name, const char *path) {
        _cleanup_fd_ int fd = openat(parent_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && lacks_a_place(opening, fd, path))
                return open_up(opening, fd, path);
        _cleanup_fd_ int tree =
                fd < 0 ? -1 : sys_open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
        int code = tree < 0 ? -errno : mount_point_attach(opening->stage->root_fd, tree, path, true);
        return code < 0 ? err_sys(opening->err, -code, "showing %s", path) : 0;
}

static int show_file(const struct opening *opening, int parent_fd, const char *name, const char *path) {
        int hidden = stands_in_the_way(opening, path, "file");
        if (hidden)
                return hidden < 0 ? -1 : 0;
        _cleanup_fd_ int tree =
                sys_open_tree(parent_fd, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
        int code = tree < 0 ? -errno : mount_point_attach(opening->stage->root_fd, tree, path, false);
        return code < 0 ? err_sys(opening->err, -code, "showing %s", path) : 0;
}

static int show_link(const struct opening *opening, int parent_fd, const char *name, int into_fd, const char *path) {
        char target[PATH_MAX];
        int hidden = stands_in_the_way(opening, path, "symbolic link");
        if (hidden)
                return hidden < 0 ? -1 : 0;
        ssize_t size = readlinkat(parent_fd, name, target, sizeof(target) - 1);
        if (size < 0)
                return err_sys(opening->err, errno, "reading the link %s", path);
        target[size] = '\0';
        return symlinkat(target, into_fd, name) < 0 ? err_sys(opening->err, errno, "linking %s", path) : 0;
}

static int show_entry(const struct opening *opening, int fd, const char *name, int into_fd, const char *parent) {
        char path[PATH_MAX];
        struct stat status;
        if ((size_t) snprintf(path, sizeof(path), "%s/%s", parent, name) >= sizeof(path))
                return err_sys(opening->err, ENAMETOOLONG, "showing an entry of %s", parent);
        if (fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(opening->err, errno, "looking at %s", path);
        if (S_ISDIR(status.st_mode))
                return show_directory(opening, fd, name, path);
        if (S_ISLNK(status.st_mode))
                return show_link(opening, fd, name, into_fd, path);
        return S_ISREG(status.st_mode) ? show_file(opening, fd, name, path) : 0; /* no device, socket or FIFO */
}

/* `fd` is a directory of an attached tree; what it holds is shown in a directory of our own. */
static int open_up(const struct opening *opening, int fd, const char *path) {
        _cleanup_fd_ int into_fd = mount_point_make_directory(opening->stage->root_fd, path);
        if (into_fd < 0)
                return err_sys(opening->err, -into_fd, "making %s", path);
        _cleanup_fd_ int list_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_dir_ DIR *directory = list_fd < 0 ? NULL : fdopendir(list_fd);
        if (!directory)
                return err_sys(opening->err, errno, "listing %s of the image", path);
        (void) take_fd(&list_fd);
        size_t n = 0;
        for (struct dirent *entry; (entry = dir_next(directory));) {
                if (++n > ENTRIES_MAX)
                        return err_set(opening->err, ERR_LIMIT,
                                       "nothing can be mounted in %s: the image has more than %d entries there; choose "
                                       "another destination",
                                       path, ENTRIES_MAX);
                if (show_entry(opening, fd, entry->d_name, into_fd, path) < 0)
                        return -1;
        }
        return errno ? err_sys(opening->err, errno, "listing %s of the image", path) : 0;
}

/* The one call that takes a path only. Callers may stand elsewhere. */
static int unmount_below(int root_fd, const char *path) {
        _cleanup_fd_ int here_fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (here_fd < 0 || fchdir(root_fd) < 0)
                return -errno;
        int code = umount2(path, MNT_DETACH) < 0 ? -errno : 0;
        return fchdir(here_fd) < 0 && code == 0 ? -errno : code;
}

/* A tree must be attached before parts of it can be copied (until Linux 6.15). */
static int open_tree_up(const struct opening *opening, int tree_fd, const char *path) {
        int root_fd = opening->stage->root_fd;
        int code = mount_point_attach(root_fd, tree_fd, OPENED, true);
        if (code < 0)
                return err_sys(opening->err, -code, "attaching %s of the image", path);
        int result = open_up(opening, tree_fd, path);
        code = unmount_below(root_fd, OPENED);
        if (code == 0 && unlinkat(root_fd, OPENED, AT_REMOVEDIR) < 0)
                code = -errno;
        return code < 0 && result == 0 ? err_sys(opening->err, -code, "detaching %s of the image", path) : result;
}

/* Of a box with users: a copy, which its root may change. */
static int copy_etc(const struct opening *opening, int tree_fd) {
        _cleanup_fd_ int etc_fd = mount_point_make_directory(opening->stage->root_fd, "etc");
        int code = etc_fd < 0 ? etc_fd : users_copy_etc(tree_fd, etc_fd);
        return code < 0 ? err_sys(opening->err, -code, "copying /etc of the image") : 0;
}

static int show_tree(const struct opening *opening, int tree_fd, const char *path) {
        struct stat status;
        if (opening->stage->spec->users && strcmp(path, "/etc") == 0)
                return copy_etc(opening, tree_fd);
        if (fstat(tree_fd, &status) < 0)
                return err_sys(opening->err, errno, "looking at %s of the image", path);
        bool is_directory = S_ISDIR(status.st_mode);
        if (!is_directory) {
                int hidden = stands_in_the_way(opening, path, "file");
                /* A tree is a need itself, at its own path. */
                if (hidden < 0)
                        return -1;
        } else if (lacks_a_place(opening, tree_fd, path)) {
                return open_tree_up(opening, tree_fd, path);
        }
        int code = mount_point_attach(opening->stage->root_fd, tree_fd, path, is_directory);
        return code < 0 ? err_sys(opening->err, -code, "showing %s", path) : 0;
}

int rootfs_image(struct stage *stage, struct err *err) {
        const struct image *image = stage->spec->image;
        if (stage->spec->from_template)
                return 0;
        struct opening opening = { .stage = stage, .err = err };
        list_needs(&opening);
        for (size_t i = 0; i < image->n_trees; i++)
                if (show_tree(&opening, stage->fds->tree_fds[i], image->trees[i].path) < 0)
                        return -1;
        for (size_t i = 0; i < image->n_links; i++) {
                int hidden = stands_in_the_way(&opening, image->links[i].path, "symbolic link");
                if (hidden < 0)
                        return -1;
                if (!hidden && symlinkat(image->links[i].target, stage->root_fd, image->links[i].path + 1) < 0)
                        return err_sys(err, errno, "linking %s", image->links[i].path);
        }
        return 0;
}
