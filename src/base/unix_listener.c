#include "base/unix_listener.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"

static int bind_socket(int fd, const struct sockaddr_un *address, int backlog) {
        /* bind gives the file the mode of the socket: at no moment does another user get in. */
        if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *) address, sizeof(*address)) < 0)
                return -errno;
        if (listen(fd, backlog) < 0) {
                int code = -errno;
                (void) unlink(address->sun_path);
                return code;
        }
        return 0;
}

int unix_listener_bind(const struct sockaddr_un *address, int type, int backlog) {
        _cleanup_fd_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
        int code = fd < 0 ? -errno : bind_socket(fd, address, backlog);
        return code < 0 ? code : take_fd(&fd);
}

/* When in doubt, yes: the file of a living process is never removed. */
static bool has_listener(const struct sockaddr_un *address) {
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        return fd < 0 || connect(fd, (const struct sockaddr *) address, sizeof(*address)) == 0 ||
               (errno != ECONNREFUSED && errno != ENOENT);
}

static int remove_stale(const struct sockaddr_un *address, struct err *err) {
        const char *path = address->sun_path;
        struct stat status;
        if (lstat(path, &status) < 0)
                return errno == ENOENT ? 0 : err_sys(err, errno, "looking at %s", path);
        if (!S_ISSOCK(status.st_mode))
                return err_set(err, ERR_EXISTS, "%s is there and is not a socket; remove it or choose another path",
                               path);
        if (has_listener(address))
                return err_set(err, ERR_BUSY, "another daemon listens on %s", path);
        return unlink(path) < 0 && errno != ENOENT ? err_sys(err, errno, "removing the stale %s", path) : 0;
}

int unix_listener_open(const char *path, const char *option, int backlog, struct err *err) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        if (strlen(path) >= sizeof(address.sun_path))
                return err_set(err, ERR_USAGE, "the socket's path %s is longer than %zu bytes; choose a shorter %s",
                               path, sizeof(address.sun_path) - 1, option);
        (void) strcpy(address.sun_path, path);
        if (remove_stale(&address, err) < 0)
                return -1;
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return err_sys(err, errno, "making a socket");
        fd_passing_refuse(fd); /* connections inherit it */
        int code = bind_socket(fd, &address, backlog);
        if (code == -EOPNOTSUPP || code == -EPERM)
                return err_set(err, ERR_UNSUPPORTED,
                               "the file system of %s has no UNIX sockets (%s); give a directory on a native Linux "
                               "file system with %s, for example /run/user/%u or /tmp",
                               path, strerror(-code), option, geteuid());
        return code < 0 ? err_sys(err, -code, "listening on %s", path) : take_fd(&fd);
}
