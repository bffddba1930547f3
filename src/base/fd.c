#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void fd_close(int *fd) {
        int saved = errno;
        if (*fd >= 0)
                (void) close(*fd);
        *fd = -1;
        errno = saved;
}

int fd_write_all(int fd, const void *bytes, size_t size) {
        const char *at = bytes;
        while (size > 0) {
                ssize_t n = write(fd, at, size);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                at += n;
                size -= (size_t) n;
        }
        return 0;
}

int fd_read_exactly(int fd, void *bytes, size_t size) {
        char *at = bytes;
        while (size > 0) {
                ssize_t n = read(fd, at, size);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        return -ENODATA;
                at += n;
                size -= (size_t) n;
        }
        return 0;
}

ssize_t fd_read_at(int fd, void *bytes, size_t size, uint64_t offset) {
        size_t done = 0;
        while (done < size) {
                ssize_t n = pread(fd, (char *) bytes + done, size - done, (off_t) (offset + done));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                done += (size_t) n;
        }
        return (ssize_t) done;
}

int fd_read_to_end(int fd, size_t max, char **ret_bytes, size_t *ret_size) {
        size_t size = 0, room = 4096;
        char *bytes = malloc(room + 1);
        if (!bytes)
                return -ENOMEM;
        for (;;) {
                if (size == room) {
                        room *= 2;
                        char *grown = realloc(bytes, room + 1);
                        if (!grown) {
                                free(bytes);
                                return -ENOMEM;
                        }
                        bytes = grown;
                }
                ssize_t n = read(fd, bytes + size, room - size);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) {
                        int code = -errno;
                        free(bytes);
                        return code;
                }
                if (n == 0)
                        break;
                size += (size_t) n;
                if (size > max) {
                        free(bytes);
                        return -E2BIG;
                }
        }
        bytes[size] = '\0';
        *ret_bytes = bytes;
        if (ret_size)
                *ret_size = size;
        return 0;
}

int fd_sealed_copy(const char *name, const void *bytes, size_t size) {
        _cleanup_fd_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0)
                return -errno;
        int code = fd_write_all(fd, bytes, size);
        if (code < 0)
                return code;
        if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
                return -errno;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return -errno;
        return take_fd(&fd);
}

int fd_path(int fd, char *ret_path, size_t room) {
        char link[64];
        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, ret_path, room);
        if (length < 0)
                return -errno;
        if ((size_t) length >= room)
                return -ENAMETOOLONG;
        ret_path[length] = '\0';
        return 0;
}

int fd_set_nonblocking(int fd) {
        int flags = fcntl(fd, F_GETFL);
        return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}
