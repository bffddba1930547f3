#include "spawn/supervisor_network.h"

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

enum { GIVEN_MAX = 64, SPARE_MAX = 8, COUNTERS_MAX = 16 << 10, WHOLE_MAX = 2048 };

/* Traffic of all protocols, what failed before it became traffic, sockets that outlived their process; and what a
 * process can leave in there without sending anything: labels of flows, routes that were looked up. */
static const char *const counters[] = { "/proc/self/net/dev",           "/proc/self/net/snmp",
                                        "/proc/self/net/snmp6",         "/proc/self/net/unix",
                                        "/proc/self/net/ip6_flowlabel", "/proc/self/net/ipv6_route",
                                        "/proc/self/net/rt6_stats" };

/* A file of counters tells about the namespace in which it was opened: it stays open as long as its namespace is used,
 * which saves opening it again after each box. */
struct network {
        int fd;
        int counter_fds[ELEMENTS(counters)]; /* -1: this kernel has none */
};

static int own_fd = -1;
static struct network entered;
static struct network spare[SPARE_MAX];
static size_t n_spare;

static struct {
        pid_t pid;
        struct network network;
} given[GIVEN_MAX];
static size_t n_given;

/* Everything that the kernel counts in a namespace that nobody has used. */
static char unused[COUNTERS_MAX];
static size_t unused_size;

static void close_network(struct network *network) {
        fd_close(&network->fd);
        for (size_t i = 0; i < ELEMENTS(counters); i++)
                fd_close(&network->counter_fds[i]);
}

/* Of the namespace that we are in. */
static bool open_network(struct network *ret_network) {
        bool is_open = true;
        ret_network->fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        for (size_t i = 0; i < ELEMENTS(counters); i++) {
                ret_network->counter_fds[i] = open(counters[i], O_RDONLY | O_CLOEXEC);
                is_open &= ret_network->counter_fds[i] >= 0 || errno == ENOENT; /* a kernel without IPv6 */
        }
        if (is_open && ret_network->fd >= 0)
                return true;
        close_network(ret_network);
        return false;
}

/* 0 when they cannot be read. */
static size_t read_counters(const struct network *network, char ret_text[static COUNTERS_MAX]) {
        size_t size = 0;
        for (size_t i = 0; i < ELEMENTS(counters); i++) {
                if (network->counter_fds[i] < 0)
                        continue;
                /* The kernel answers with as many lines as fit into a page: with half of it free, that was all. */
                bool is_whole = false;
                for (off_t at = 0; !is_whole;) {
                        ssize_t n = size == COUNTERS_MAX ? -1 : pread(network->counter_fds[i], ret_text + size,
                                                                      COUNTERS_MAX - size, at);
                        if (n < 0)
                                return 0;
                        size += (size_t) n;
                        at += n;
                        is_whole = n == 0 || (at <= WHOLE_MAX && size < COUNTERS_MAX);
                }
        }
        return size;
}

static bool is_unused(const struct network *network) {
        static char text[COUNTERS_MAX];
        size_t size = read_counters(network, text);
        return size > 0 && size == unused_size && memcmp(text, unused, size) == 0;
}

static bool raise_loopback(void) {
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        return fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
}

/* Anywhere else the next box would meet a stranger: better no supervisor than that. */
static void go_back(void) {
        if (setns(own_fd, CLONE_NEWNET) < 0)
                _exit(EXIT_FAILURE);
}

/* We are in it then. */
static bool make_namespace(struct network *ret_network) {
        if (unshare(CLONE_NEWNET) < 0)
                return false;
        if (!raise_loopback() || !open_network(ret_network)) {
                go_back();
                return false;
        }
        if (unused_size == 0)
                unused_size = read_counters(ret_network, unused);
        return true;
}

bool supervisor_network_open(void) {
        own_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        return own_fd >= 0;
}

bool supervisor_network_enter(void) {
        if (own_fd < 0 || n_given == GIVEN_MAX)
                return false;
        if (n_spare == 0 || setns(spare[0].fd, CLONE_NEWNET) < 0)
                return make_namespace(&entered);
        entered = spare[0];
        memmove(&spare[0], &spare[1], --n_spare * sizeof(spare[0]));
        return true;
}

void supervisor_network_leave(pid_t pid) {
        go_back();
        if (pid > 0) {
                given[n_given].pid = pid;
                given[n_given++].network = entered;
        } else
                close_network(&entered);
}

void supervisor_network_forget(pid_t pid) {
        for (size_t i = 0; i < n_given; i++) {
                if (given[i].pid != pid)
                        continue;
                struct network network = given[i].network;
                given[i] = given[--n_given];
                if (n_spare < SPARE_MAX && is_unused(&network))
                        spare[n_spare++] = network;
                else
                        close_network(&network);
                return;
        }
}
