/* File descriptors: the variable that holds one owns it, transfers are visible, and every way out closes it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

/* Closes *fd if it is one, and leaves -1 there. Never retried on EINTR: the descriptor is gone already. errno stays. */
void fd_close(int *fd);
#define _cleanup_fd_ _cleanup_(fd_close)

/* The transfer of ownership: returns *fd and leaves -1. */
static inline int take_fd(int *fd) {
        int taken = *fd;
        *fd = -1;
        return taken;
}

/* Moves all bytes or fails with -errno (EPIPE when the other end closed early; -ENODATA for a short read). */
int fd_write_all(int fd, const void *bytes, size_t size);
int fd_read_exactly(int fd, void *bytes, size_t size);

/* Reads at an offset. Returns the number of bytes, which is less than size only at the end of the file, or -errno. */
ssize_t fd_read_at(int fd, void *bytes, size_t size, uint64_t offset);

/* Reads to the end into a fresh, NUL-terminated buffer that the caller frees. -E2BIG past max bytes. */
int fd_read_to_end(int fd, size_t max, char **ret_bytes, size_t *ret_size);

/* A sealed, read-only memfd that holds these bytes. Returns the descriptor or -errno. */
int fd_sealed_copy(const char *name, const void *bytes, size_t size);

/* The path that the kernel has for it now. Returns 0 or -errno; -ENAMETOOLONG if there is no room. */
int fd_path(int fd, char *ret_path, size_t room);

int fd_set_nonblocking(int fd);
