#include "session/ward_network.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

enum { GIVEN_MAX = 64, SPARE_MAX = 8, COUNTERS_MAX = 16 << 10 };

static int own_fd = -1;
static int entered_fd = -1;
static int spare_fds[SPARE_MAX];
static size_t n_spare;

static struct {
        pid_t pid;
        int fd;
} given[GIVEN_MAX];
static size_t n_given;

/* Everything that the kernel counts in a namespace that nobody has used. */
static char unused[COUNTERS_MAX];
static size_t unused_size;

/* The counters of the namespace that we are in; 0 when they cannot be read. */
static size_t read_counters(char ret_text[static COUNTERS_MAX]) {
        /* Traffic of all protocols, what failed before it became traffic, sockets that outlived their process; and what
         * a process can leave in there without sending anything: labels of flows, routes that were looked up. */
        static const char *const files[] = { "/proc/self/net/dev",   "/proc/self/net/snmp",
                                             "/proc/self/net/snmp6", "/proc/self/net/unix",
                                             "/proc/self/net/ip6_flowlabel", "/proc/self/net/ipv6_route",
                                             "/proc/self/net/rt6_stats" };
        size_t size = 0;
        for (size_t i = 0; i < ELEMENTS(files); i++) {
                _cleanup_fd_ int fd = open(files[i], O_RDONLY | O_CLOEXEC);
                if (fd < 0 && errno == ENOENT)
                        continue; /* a kernel without IPv6 */
                for (ssize_t n = 1; n != 0; size += (size_t) n)
                        if (size == COUNTERS_MAX || (n = read(fd, ret_text + size, COUNTERS_MAX - size)) < 0)
                                return 0;
        }
        return size;
}

static bool is_unused(void) {
        static char text[COUNTERS_MAX];
        size_t size = read_counters(text);
        return size > 0 && size == unused_size && memcmp(text, unused, size) == 0;
}

static bool raise_loopback(void) {
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        return fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
}

/* Anywhere else the next box would meet a stranger: better no ward than that. */
static void go_back(void) {
        if (setns(own_fd, CLONE_NEWNET) < 0)
                _exit(EXIT_FAILURE);
}

/* -1 when it cannot be made; we are in it otherwise. */
static int make_namespace(void) {
        if (unshare(CLONE_NEWNET) < 0)
                return -1;
        int fd = raise_loopback() ? open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
        if (fd >= 0 && unused_size == 0)
                unused_size = read_counters(unused);
        if (fd < 0)
                go_back();
        return fd;
}

bool ward_network_open(void) {
        own_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        return own_fd >= 0;
}

bool ward_network_enter(void) {
        if (own_fd < 0 || n_given == GIVEN_MAX)
                return false;
        if (n_spare > 0 && setns(spare_fds[0], CLONE_NEWNET) == 0) {
                entered_fd = spare_fds[0];
                memmove(&spare_fds[0], &spare_fds[1], --n_spare * sizeof(spare_fds[0]));
        } else
                entered_fd = make_namespace();
        return entered_fd >= 0;
}

void ward_network_leave(pid_t pid) {
        go_back();
        if (pid > 0) {
                given[n_given].pid = pid;
                given[n_given++].fd = take_fd(&entered_fd);
        }
        fd_close(&entered_fd);
}

static void take_back(int fd) {
        bool keep = n_spare < SPARE_MAX && setns(fd, CLONE_NEWNET) == 0;
        if (keep) {
                keep = is_unused();
                go_back();
        }
        if (keep)
                spare_fds[n_spare++] = fd;
        else
                fd_close(&fd);
}

void ward_network_forget(pid_t pid) {
        for (size_t i = 0; i < n_given; i++) {
                if (given[i].pid != pid)
                        continue;
                int fd = given[i].fd;
                given[i] = given[--n_given];
                take_back(fd);
                return;
        }
}
