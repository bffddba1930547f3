#include "store/tenant_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/syscalls.h"
#include "store/reaper.h"

enum { SAFELY = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV };

int tenant_file_open(int dir_fd, const char *path, unsigned flags, struct stat *ret_status) {
        const unsigned mode = flags & O_CREAT ? 0644 : 0;
        struct stat status;
        _cleanup_fd_ int fd = sys_openat2(dir_fd, path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode, SAFELY);
        if (fd < 0 || fstat(fd, &status) < 0)
                return -errno;
        if (!S_ISREG(status.st_mode))
                return -ENXIO;
        if (ret_status)
                *ret_status = status;
        return take_fd(&fd);
}

int tenant_file_open_directory(int dir_fd, const char *path, unsigned flags) {
        int fd = sys_openat2(dir_fd, path, flags | O_DIRECTORY | O_NOFOLLOW, 0, SAFELY);
        return fd < 0 ? -errno : fd;
}

static int open_own(const char *directory) {
        return open(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool tenant_file_exists(const char *directory, const char *name) {
        struct stat status;
        char path[PATH_MAX];
        (void) snprintf(path, sizeof(path), "%s/%s", directory, name);
        if (lstat(directory, &status) == 0 && !S_ISDIR(status.st_mode))
                return false;
        if (lstat(path, &status) < 0)
                return errno != ENOENT && errno != ENOTDIR;
        return S_ISREG(status.st_mode);
}

void tenant_file_rename(const char *directory, const char *name, const char *new_name) {
        _cleanup_fd_ int dir_fd = open_own(directory);
        if (dir_fd >= 0)
                (void) reaper_rename(dir_fd, name, dir_fd, new_name);
}

void tenant_file_remove(const char *directory, const char *name) {
        _cleanup_fd_ int dir_fd = open_own(directory);
        if (dir_fd >= 0)
                (void) reaper_unlink(dir_fd, name);
}
