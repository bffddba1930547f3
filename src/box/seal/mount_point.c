#include "box/seal/mount_point.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/syscalls.h"

/* Makes the directory and its parents below the root without ever following a link; returns it (O_PATH) or -errno. */
int mount_point_make_directory(int root_fd, const char *path) {
        char copy[4096];
        if (strlen(path) >= sizeof(copy))
                return -ENAMETOOLONG;
        (void) strcpy(copy, path);
        _cleanup_fd_ int at = sys_openat2(root_fd, ".", O_PATH | O_DIRECTORY, 0, RESOLVE_BENEATH);
        if (at < 0)
                return -errno;
        char *rest = copy, *name;
        while ((name = strsep(&rest, "/"))) {
                if (!*name)
                        continue;
                if (mkdirat(at, name, 0755) < 0 && errno != EEXIST && errno != EROFS)
                        return -errno;
                int next = sys_openat2(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0,
                                       RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
                if (next < 0)
                        return -errno;
                fd_close(&at);
                at = next;
        }
        return take_fd(&at);
}

int mount_point_write_in(int parent_fd, const char *name, const void *bytes, size_t size) {
        _cleanup_fd_ int fd = sys_openat2(parent_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644,
                                          RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        if (fd < 0)
                return -errno;
        return fd_write_all(fd, bytes, size);
}

int mount_point_write(int root_fd, const char *path, const void *bytes, size_t size) {
        char directory[4096];
        const char *name = strrchr(path, '/');
        (void) snprintf(directory, sizeof(directory), "%.*s", name ? (int) (name - path) : 0, path);
        _cleanup_fd_ int parent = mount_point_make_directory(root_fd, directory);
        return parent < 0 ? parent : mount_point_write_in(parent, name ? name + 1 : path, bytes, size);
}

int mount_point_put(int tree_fd, int target_fd) {
        unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
        return sys_move_mount(tree_fd, "", target_fd, "", flags) < 0 ? -errno : 0;
}

/* Attaches a tree at a path, making the mount point (a directory or an empty file) where there is none. */
int mount_point_attach(int root_fd, int tree_fd, const char *path, bool is_directory) {
        _cleanup_fd_ int target = -1;
        if (is_directory)
                target = mount_point_make_directory(root_fd, path);
        else {
                int code = mount_point_write(root_fd, path, "", 0);
                if (code < 0 && code != -EEXIST && code != -EROFS)
                        return code;
                target = sys_openat2(root_fd, path + strspn(path, "/"), O_PATH | O_NOFOLLOW, 0,
                                     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
                if (target < 0)
                        target = -errno;
        }
        return target < 0 ? target : mount_point_put(tree_fd, target);
}
