/* Theory of operation. One process, a child of PID 1, one poll. For each connection that comes in on the loopback
 * interface it makes one to ENGINE_PROXY, and copies both ways until both have ended. Code in the box can
 * kill it, and then has no network. The proxy outside enforces the network rules, so this process needs no trust. */
#include "relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/programs.h"

enum { PAIRS_MAX = 64, PIECE = 16 << 10, BACKLOG = 128, LISTENER_FD = 3 };

/* One direction of a connection. */
struct flow {
        int from_fd, to_fd; /* of the pair */
        size_t at, size;    /* of what was read and is not written yet */
        bool has_ended;     /* end of file was read */
        bool is_over;       /* and all of it was written */
        char bytes[PIECE];
};

struct pair {
        int fds[2];
        struct flow flows[2];
};

static struct pair *pairs[PAIRS_MAX];
static size_t n_pairs;

static void pair_close(size_t i) {
        fd_close(&pairs[i]->fds[0]);
        fd_close(&pairs[i]->fds[1]);
        free(pairs[i]);
        pairs[i] = pairs[--n_pairs];
}

static int connect_to_proxy(void) {
        const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = ENGINE_PROXY };
        _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        return take_fd(&fd);
}

static void accept_one(void) {
        _cleanup_fd_ int client = accept4(LISTENER_FD, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        _cleanup_fd_ int proxy = client < 0 ? -1 : connect_to_proxy();
        struct pair *pair = proxy < 0 ? NULL : malloc(sizeof(*pair));
        if (!pair)
                return; /* the client's connection is closed */
        pair->fds[0] = take_fd(&client);
        pair->fds[1] = take_fd(&proxy);
        for (size_t i = 0; i < 2; i++) {
                struct flow *flow = &pair->flows[i];
                flow->from_fd = pair->fds[i];
                flow->to_fd = pair->fds[1 - i];
                flow->at = flow->size = 0;
                flow->has_ended = flow->is_over = false;
        }
        pairs[n_pairs++] = pair;
}

static bool is_transient(void) {
        return errno == EAGAIN || errno == EINTR;
}

/* False: the connection is broken. */
static bool flow_move(struct flow *flow) {
        if (flow->is_over)
                return true;
        if (flow->at == flow->size && !flow->has_ended) {
                ssize_t n = recv(flow->from_fd, flow->bytes, sizeof(flow->bytes), 0);
                if (n < 0)
                        return is_transient();
                flow->has_ended = n == 0;
                flow->at = 0;
                flow->size = (size_t) n;
        }
        while (flow->at < flow->size) {
                ssize_t n = send(flow->to_fd, flow->bytes + flow->at, flow->size - flow->at, MSG_NOSIGNAL);
                if (n < 0)
                        return is_transient();
                flow->at += (size_t) n;
        }
        if (flow->has_ended) {
                flow->is_over = true;
                (void) shutdown(flow->to_fd, SHUT_WR);
        }
        return true;
}

/* The poll events for descriptor `i` of the pair. */
static short events_of(const struct pair *pair, size_t i) {
        const struct flow *out = &pair->flows[i], *in = &pair->flows[1 - i];
        bool reads = !out->has_ended && out->at == out->size, writes = in->at < in->size;
        return (short) ((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
}

static void relay_turn(void) {
        struct pollfd polled[1 + 2 * PAIRS_MAX];
        size_t n = 0, n_before = n_pairs;
        polled[n++] = (struct pollfd) { .fd = n_pairs < PAIRS_MAX ? LISTENER_FD : -1, .events = POLLIN };
        for (size_t i = 0; i < n_pairs; i++)
                for (size_t k = 0; k < 2; k++) { /* without an event, POLLHUP would come again and again */
                        short events = events_of(pairs[i], k);
                        polled[n++] = (struct pollfd) { .fd = events ? pairs[i]->fds[k] : -1, .events = events };
                }
        if (poll(polled, (nfds_t) n, -1) <= 0)
                return;
        for (size_t i = n_before; i-- > 0;) { /* backwards: a removed entry is replaced by the last one */
                struct pair *pair = pairs[i];
                if (!polled[1 + 2 * i].revents && !polled[2 + 2 * i].revents)
                        continue;
                if (!flow_move(&pair->flows[0]) || !flow_move(&pair->flows[1]) ||
                    (pair->flows[0].is_over && pair->flows[1].is_over))
                        pair_close(i);
        }
        if (polled[0].revents)
                accept_one();
}

static void relay_become(int listener_fd) __attribute__((noreturn));
static void relay_become(int listener_fd) {
        if (dup2(listener_fd, LISTENER_FD) < 0)
                _exit(EXIT_FAILURE);
        (void) syscall(SYS_close_range, LISTENER_FD + 1, ~0u, 0);
        for (int fd = LISTENER_FD + 1; fd < 64; fd++) /* older kernels, and gVisor's, have no close_range */
                (void) close(fd);
        (void) setsid();
        (void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        (void) prctl(PR_SET_NAME, "relay", 0, 0, 0);
        for (;;)
                relay_turn();
}

int relay_listen(uint16_t port) {
        const struct sockaddr_in address = { .sin_family = AF_INET,
                                             .sin_port = htons(port),
                                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 || listen(fd, BACKLOG) < 0)
                return -errno;
        return take_fd(&fd);
}

int relay_start(uint16_t port) {
        _cleanup_fd_ int fd = relay_listen(port);
        if (fd < 0)
                return fd;
        pid_t pid = fork();
        if (pid == 0)
                relay_become(fd);
        return pid < 0 ? -errno : 0;
}
