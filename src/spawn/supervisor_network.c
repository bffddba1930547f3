#include "spawn/supervisor_network.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

enum { AHEAD_MAX = 4, DELAY_MS = 2 };

static int own_fd = -1;
static int ahead_fds[AHEAD_MAX];
static size_t n_ahead;
static bool is_used; /* a supervisor whose boxes bring their own network makes none */

static bool raise_loopback(void) {
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        return fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
}

/* The next box must not be cloned into another's network: without a way back the supervisor ends. */
void supervisor_network_leave(void) {
        if (setns(own_fd, CLONE_NEWNET) < 0)
                _exit(EXIT_FAILURE);
}

/* Makes a namespace and stays in it. */
static bool enter_new(void) {
        if (unshare(CLONE_NEWNET) < 0)
                return false;
        if (raise_loopback())
                return true;
        supervisor_network_leave();
        return false;
}

bool supervisor_network_open(void) {
        own_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        return own_fd >= 0;
}

int supervisor_network_delay_ms(void) {
        if (!is_used || n_ahead == AHEAD_MAX)
                return -1;
        return n_ahead == 0 ? 0 : DELAY_MS;
}

void supervisor_network_make_one(void) {
        if (!enter_new()) {
                is_used = false; /* until the next box asks */
                return;
        }
        int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
                ahead_fds[n_ahead++] = fd;
        else
                is_used = false;
        supervisor_network_leave();
}

bool supervisor_network_enter(void) {
        if (own_fd < 0)
                return false;
        is_used = true;
        if (n_ahead == 0)
                return enter_new();
        _cleanup_fd_ int fd = ahead_fds[--n_ahead]; /* closed here: it is never entered again */
        return setns(fd, CLONE_NEWNET) == 0 || enter_new();
}
