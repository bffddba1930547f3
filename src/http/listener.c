#include "http/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/peer.h"
#include "base/unix_listener.h"
#include "http/conn_io.h"

struct http_listener {
        struct http_server *server;
        int fd;
        bool is_unix;
        dev_t device; /* of the UNIX socket's file, so that another's is not removed */
        ino_t inode;
        struct loop_watch *watch;
        struct loop_timer *pause;
};

/* ---- accepting ---- */

#define TURNED_AWAY                                                                                                    \
        "{\"status\":503,\"title\":\"Service Unavailable\",\"code\":\"busy\",\"detail\":\"too many clients are "       \
        "connected\",\"remedy\":\"try again in a second\"}\n"

static void turn_away(struct http_server *server, int fd) {
        char answer[512];
        int n = snprintf(answer, sizeof(answer),
                         "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
                         "Content-Length: %zu\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" TURNED_AWAY,
                         sizeof(TURNED_AWAY) - 1);
        server->counters.turned_away++;
        (void) send(fd, answer, (size_t) n, MSG_NOSIGNAL | MSG_DONTWAIT);
        /* A request that is here already and stays unread would make the close a reset, and spoil the answer. */
        (void) recv(fd, server->scratch, HTTP_READ_SIZE, MSG_DONTWAIT);
        fd_close(&fd);
}

/* Closes the oldest connection that has not sent a whole request yet, so that a crowd of silent connections displaces
 * itself, and not active clients. */
static bool close_oldest_idle(struct http_server *server) {
        struct http_conn_io *silent = NULL, *idle = NULL;
        for (struct http_conn_io *link = server->links; link; link = link->next) {
                if (http_conn_io_is_unproven(link) && (!silent || link->since_ms <= silent->since_ms))
                        silent = link;
                if (http_conn_io_is_idle(link) && (!idle || link->since_ms <= idle->since_ms))
                        idle = link;
        }
        struct http_conn_io *oldest = silent ? silent : idle;
        if (oldest)
                http_conn_io_close(oldest);
        return oldest != NULL;
}

static int describe_unix_peer(int fd, struct http_peer *peer) {
        struct ucred credentials;
        socklen_t size = sizeof(credentials);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
                return -errno;
        /* Mode 0600 implies it; this also holds if the mode was changed. */
        if (credentials.uid != geteuid() && credentials.uid != 0)
                return -EACCES;
        if (peer_is_in_box(fd))
                return -EACCES;
        peer->is_unix = true;
        peer->uid = credentials.uid;
        (void) strcpy(peer->address, "unix");
        return 0;
}

static int describe_tcp_peer(int fd, const struct sockaddr_storage *address, struct http_peer *peer) {
        const void *raw = address->ss_family == AF_INET6
                                  ? (const void *) &((const struct sockaddr_in6 *) address)->sin6_addr
                                  : (const void *) &((const struct sockaddr_in *) address)->sin_addr;
        if (!inet_ntop(address->ss_family, raw, peer->address, sizeof(peer->address)))
                return -errno;
        int one = 1;
        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        return 0;
}

static void listener_take_connection(struct http_listener *listener, int fd, const struct sockaddr_storage *address) {
        struct http_server *server = listener->server;
        struct http_peer peer = { 0 };
        if ((listener->is_unix ? describe_unix_peer(fd, &peer) : describe_tcp_peer(fd, address, &peer)) < 0)
                fd_close(&fd);
        else if (server->counters.open >= server->options.connections_max && !close_oldest_idle(server))
                turn_away(server, fd);
        else {
                server->counters.accepted++;
                (void) http_conn_io_open(server, fd, &peer);
        }
}

static void on_pause_end(void *context) {
        struct http_listener *listener = context;
        listener->pause = NULL;
        (void) loop_watch_change(listener->watch, EPOLLIN);
}

/* No descriptor, or no memory, is left. The reserved descriptor is used to accept and refuse the first waiting
 * connection; the others wait a little, so that they do not wake the loop all the time. */
static void run_short(struct http_listener *listener) {
        struct http_server *server = listener->server;
        fd_close(&server->reserve_fd);
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
                turn_away(server, fd);
        server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (listener->pause)
                return;
        listener->pause = loop_timer(server->loop, loop_now_ms() + HTTP_ACCEPT_PAUSE_MS, on_pause_end, listener);
        if (listener->pause)
                (void) loop_watch_change(listener->watch, 0);
}

static void on_connections(void *context, uint32_t events) {
        struct http_listener *listener = context;
        (void) events;
        for (int i = 0; i < HTTP_ACCEPTS_PER_TURN; i++) {
                struct sockaddr_storage address;
                socklen_t size = sizeof(address);
                int fd = accept4(listener->fd, (struct sockaddr *) &address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
                if (fd >= 0) {
                        listener_take_connection(listener, fd, &address);
                        continue;
                }
                if (errno == ECONNABORTED || errno == EINTR)
                        continue;
                if (errno != EAGAIN)
                        run_short(listener);
                return;
        }
}

/* ---- opening ---- */

/* Takes the socket, and closes it if this fails. The server owns the listener. */
static struct http_listener *listener_make(struct http_server *server, int fd, struct err *err) {
        struct http_listener *listener = calloc(1, sizeof(*listener));
        if (!listener) {
                fd_close(&fd);
                (void) err_set(err, ERR_SYSTEM, "out of memory");
                return NULL;
        }
        listener->server = server;
        listener->fd = fd;
        server->listeners[server->n_listeners++] = listener;
        return listener;
}

static int listener_watch(struct http_listener *listener, struct err *err) {
        listener->watch = loop_watch(listener->server->loop, listener->fd, EPOLLIN, on_connections, listener);
        return listener->watch ? 0 : err_set(err, ERR_SYSTEM, "listening for HTTP: out of memory or descriptors");
}

static void listener_discard(struct http_listener *listener) {
        loop_timer_drop(&listener->pause);
        loop_unwatch(&listener->watch);
        fd_close(&listener->fd);
        free(listener);
}

static bool parse_address(const char *host, uint16_t port, struct sockaddr_storage *ret_address, socklen_t *ret_size) {
        struct sockaddr_in ipv4 = { .sin_family = AF_INET, .sin_port = htons(port) };
        struct sockaddr_in6 ipv6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
        memset(ret_address, 0, sizeof(*ret_address));
        if (inet_pton(AF_INET, host, &ipv4.sin_addr) == 1)
                memcpy(ret_address, &ipv4, *ret_size = sizeof(ipv4));
        else if (inet_pton(AF_INET6, host, &ipv6.sin6_addr) == 1)
                memcpy(ret_address, &ipv6, *ret_size = sizeof(ipv6));
        else
                return false;
        return true;
}

static const char *explain_bind(int code) {
        return code == EADDRINUSE      ? ", which another program uses (choose another --port)"
               : code == EACCES        ? ", which only root may use (choose a --port from 1024 on)"
               : code == EADDRNOTAVAIL ? ", which is no address of this machine (choose another --host)"
                                       : "";
}

static int open_tcp(struct http_server *server, const char *host, uint16_t port, struct err *err) {
        struct sockaddr_storage address;
        socklen_t size;
        if (!parse_address(host, port, &address, &size))
                return err_set(err, ERR_USAGE,
                               "%s is not an address to listen on; give one such as 127.0.0.1, ::1 or 0.0.0.0, "
                               "or localhost",
                               host);
        _cleanup_fd_ int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return err_sys(err, errno, "making a socket");
        int one = 1, only_ipv6 = strcmp(host, "::") != 0;
        (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (address.ss_family == AF_INET6)
                (void) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof(only_ipv6));
        if (bind(fd, (struct sockaddr *) &address, size) < 0 || listen(fd, HTTP_BACKLOG) < 0)
                return err_sys(err, errno, "listening on %s port %u%s", host, port, explain_bind(errno));
        struct http_listener *listener = listener_make(server, take_fd(&fd), err);
        return listener ? listener_watch(listener, err) : -1;
}

/* Both loopbacks, on the same port; a machine without IPv6 has one. */
static int open_localhost(struct http_server *server, uint16_t port, struct err *err) {
        if (open_tcp(server, "127.0.0.1", port, err) < 0)
                return -1;
        if (open_tcp(server, "::1", http_listeners_port(server), err) == 0)
                return 0;
        return err->sys_errno == EAFNOSUPPORT || err->sys_errno == EADDRNOTAVAIL ? 0 : -1;
}

static int open_unix(struct http_server *server, const char *path, struct err *err) {
        _cleanup_fd_ int fd = unix_listener_open(path, "--socket-dir", HTTP_BACKLOG, err);
        struct stat status;
        if (fd < 0)
                return -1;
        if (lstat(path, &status) < 0)
                return err_sys(err, errno, "listening on %s", path);
        struct http_listener *listener = listener_make(server, take_fd(&fd), err);
        if (!listener)
                return -1;
        listener->is_unix = true;
        listener->device = status.st_dev;
        listener->inode = status.st_ino;
        return listener_watch(listener, err);
}

int http_listeners_open(struct http_server *server, struct err *err) {
        const struct http_options *options = &server->options;
        if (!options->tcp_host && !options->unix_path)
                return err_set(err, ERR_USAGE, "neither an address nor a socket to listen on was given");
        if (options->unix_path && open_unix(server, options->unix_path, err) < 0)
                return -1;
        if (!options->tcp_host)
                return 0;
        if (strcmp(options->tcp_host, "localhost") == 0)
                return open_localhost(server, options->tcp_port, err);
        return open_tcp(server, options->tcp_host, options->tcp_port, err);
}

static void remove_file(const struct http_listener *listener, const char *path) {
        struct stat status;
        if (listener->is_unix && lstat(path, &status) == 0 && status.st_dev == listener->device &&
            status.st_ino == listener->inode)
                (void) unlink(path);
}

void http_listeners_close(struct http_server *server) {
        while (server->n_listeners > 0) {
                struct http_listener *listener = server->listeners[--server->n_listeners];
                remove_file(listener, server->options.unix_path);
                listener_discard(listener);
        }
}

uint16_t http_listeners_port(const struct http_server *server) {
        for (size_t i = 0; i < server->n_listeners; i++) {
                struct sockaddr_storage address;
                socklen_t size = sizeof(address);
                if (server->listeners[i]->is_unix ||
                    getsockname(server->listeners[i]->fd, (struct sockaddr *) &address, &size) < 0)
                        continue;
                return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *) &address)->sin6_port
                                                           : ((struct sockaddr_in *) &address)->sin_port);
        }
        return 0;
}
