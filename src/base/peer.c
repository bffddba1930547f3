#include "base/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

enum { STATUS_MAX = 8192 };

/* /proc/PID/status as text; -errno when it cannot be read. */
static int read_status(const char *who, char ret_text[static STATUS_MAX]) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/%s/status", who);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t size = fd < 0 ? -1 : read(fd, ret_text, STATUS_MAX - 1);
        if (size < 0)
                return -errno;
        ret_text[size] = '\0';
        return 0;
}

static const char *status_value(const char *status, const char *name) {
        const char *at = strstr(status, name);
        return at ? at + strlen(name) : "";
}

/* How many pid namespaces, from ours downwards, the process is in. */
static size_t depth_of(const char *status) {
        size_t depth = 0;
        for (const char *at = status_value(status, "\nNSpid:"); *at == '\t'; at += strcspn(at, "\t\n"), depth++)
                at++;
        return depth;
}

/* Properties that together identify a process of a box: a PID namespace below ours, no capability even in the bounding
 * set, no_new_privs, a system-call filter. */
static bool is_sealed(const char *status, const char *own) {
        return depth_of(status) > depth_of(own) && strtoull(status_value(status, "\nCapBnd:"), NULL, 16) == 0 &&
               strtoul(status_value(status, "\nNoNewPrivs:"), NULL, 10) == 1 &&
               strtoul(status_value(status, "\nSeccomp:"), NULL, 10) == 2;
}

bool peer_is_in_box(int socket_fd) {
        struct ucred peer;
        socklen_t size = sizeof(peer);
        char who[24], status[STATUS_MAX], own[STATUS_MAX];
        if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return true;
        if (peer.pid == 0)
                return false; /* in no PID namespace below this one, hence in no box */
        (void) snprintf(who, sizeof(who), "%d", (int) peer.pid);
        if (read_status(who, status) < 0)
                return kill(peer.pid, 0) < 0 && errno == ESRCH;
        return read_status("self", own) == 0 && is_sealed(status, own);
}
