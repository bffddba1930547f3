#include "box/cgroup/cgroup_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/cgroup/cgroup_text.h"

int cgroup_file_write(int dir_fd, const char *file, const char *text) {
        _cleanup_fd_ int fd = openat(dir_fd, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return -errno;
        ssize_t n;
        do
                n = write(fd, text, strlen(text));
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        return (size_t) n == strlen(text) ? 0 : -EIO;
}

int cgroup_file_read(int dir_fd, const char *file, char *ret_text, size_t size) {
        _cleanup_fd_ int fd = openat(dir_fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return -errno;
        ssize_t n = fd_read_at(fd, ret_text, size - 1, 0);
        if (n < 0)
                return (int) n;
        ret_text[n] = '\0';
        return (int) n;
}

int cgroup_file_read_number(int dir_fd, const char *file, uint64_t *ret_number) {
        char text[64], *end;
        int n = cgroup_file_read(dir_fd, file, text, sizeof(text));
        if (n < 0)
                return n;
        errno = 0;
        uint64_t number = strtoull(text, &end, 10);
        if (errno != 0 || end == text)
                return -EINVAL;
        *ret_number = number;
        return 0;
}

int cgroup_file_read_key(int dir_fd, const char *file, const char *key, uint64_t *ret_number) {
        char text[2048];
        int n = cgroup_file_read(dir_fd, file, text, sizeof(text));
        return n < 0 ? n : cgroup_text_find_number(text, key, ret_number);
}

int cgroup_file_open_dir(int dir_fd, const char *path) {
        int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        return fd < 0 ? -errno : fd;
}
