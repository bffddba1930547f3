#include "base/open_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

static int open_resolving(int dir_fd, const char *path, int flags, uint64_t resolve) {
        struct open_how how = {
                .flags = (uint64_t) (unsigned) (flags | O_CLOEXEC),
                .resolve = resolve | RESOLVE_NO_MAGICLINKS,
        };
        for (int tries = 0;; tries++) {
                long fd = syscall(SYS_openat2, dir_fd, *path ? path : ".", &how, sizeof(how));
                if (fd >= 0)
                        return (int) fd;
                if (errno != EINTR && (errno != EAGAIN || tries > 100)) /* EAGAIN: a rename somewhere raced with us */
                        return -errno;
        }
}

int open_beneath(int dir_fd, const char *path, int flags) {
        return open_resolving(dir_fd, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

int open_beneath_as_root(int root_fd, const char *path, int flags) {
        return open_resolving(root_fd, path, flags, RESOLVE_IN_ROOT);
}

int make_directories_beneath(int dir_fd, const char *path) {
        int whole = open_beneath(dir_fd, path, O_RDONLY | O_DIRECTORY);
        if (whole != -ENOENT)
                return whole;
        _cleanup_fd_ int at_fd = open_beneath(dir_fd, "", O_RDONLY | O_DIRECTORY);
        if (at_fd < 0)
                return at_fd;
        while (*path) {
                char component[256];
                size_t size = strcspn(path, "/");
                if (size == 0 || size >= sizeof(component))
                        return -ENAMETOOLONG;
                memcpy(component, path, size);
                component[size] = '\0';
                path += size + (path[size] == '/');
                if (mkdirat(at_fd, component, 0755) < 0 && errno != EEXIST)
                        return -errno;
                int next_fd = open_beneath(at_fd, component, O_RDONLY | O_DIRECTORY);
                if (next_fd < 0)
                        return next_fd;
                fd_close(&at_fd);
                at_fd = next_fd;
        }
        return take_fd(&at_fd);
}
