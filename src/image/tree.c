#include "image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"

/* Opens a fresh description, so that reading it does not move the caller's. */
static DIR *open_directory(int dir_fd, const char *name) {
        _cleanup_fd_ int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return NULL;
        DIR *dir = fdopendir(fd);
        if (dir)
                (void) take_fd(&fd);
        return dir;
}

static bool is_dot(const char *name) {
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

int tree_empty(int dir_fd) {
        _cleanup_dir_ DIR *dir = open_directory(dir_fd, ".");
        if (!dir)
                return -errno;
        for (;;) {
                errno = 0;
                struct dirent *entry = readdir(dir);
                if (!entry)
                        return -errno;
                int code = is_dot(entry->d_name) ? 0 : tree_remove(dirfd(dir), entry->d_name);
                if (code < 0)
                        return code;
        }
}

int tree_remove(int dir_fd, const char *name) {
        if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        _cleanup_fd_ int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == EACCES && fchmodat(dir_fd, name, 0700, 0) == 0)
                fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        int code = tree_empty(fd);
        if (code == -EACCES && fchmod(fd, 0700) == 0)
                code = tree_empty(fd);
        if (code < 0)
                return code;
        return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int tree_measure(int dir_fd, const char *name, uint64_t *bytes, uint64_t *entries) {
        _cleanup_dir_ DIR *dir = open_directory(dir_fd, name);
        if (!dir)
                return -errno;
        for (;;) {
                errno = 0;
                struct dirent *entry = readdir(dir);
                if (!entry)
                        return -errno;
                struct stat st;
                if (is_dot(entry->d_name))
                        continue;
                if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return -errno;
                (*entries)++;
                if (S_ISREG(st.st_mode))
                        *bytes += (uint64_t) st.st_size / (st.st_nlink ? st.st_nlink : 1);
                int code = S_ISDIR(st.st_mode) ? tree_measure(dirfd(dir), entry->d_name, bytes, entries) : 0;
                if (code < 0)
                        return code;
        }
}
