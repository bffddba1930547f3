/* Bytes as a file without a name, for code that reads from a descriptor. */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A descriptor that the caller closes, at its beginning. */
static inline int memory_file(const void *bytes, size_t size) {
        int fd = memfd_create("bytes", MFD_CLOEXEC);
        if (fd < 0 || write(fd, bytes, size) != (ssize_t) size || lseek(fd, 0, SEEK_SET) != 0)
                abort();
        return fd;
}
