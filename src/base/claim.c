#include "base/claim.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"

/* The address begins with a NUL byte. */
static socklen_t fill_address(const char *name, struct sockaddr_un *ret_address) {
        *ret_address = (struct sockaddr_un) { .sun_family = AF_UNIX };
        int size = snprintf(ret_address->sun_path + 1, sizeof(ret_address->sun_path) - 1, "glovebox-box/%s", name);
        return (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + (size_t) size);
}

int claim_make(const char *name) {
        struct sockaddr_un address;
        socklen_t size = fill_address(name, &address);
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *) &address, size) < 0)
                return -errno;
        return take_fd(&fd);
}

bool claim_is_held(const char *name) {
        struct sockaddr_un address;
        socklen_t size = fill_address(name, &address);
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        return fd >= 0 && connect(fd, (const struct sockaddr *) &address, size) == 0;
}
