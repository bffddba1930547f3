#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/peer.h"
#include "base/unix_listener.h"
#include "daemon/daemon.h"
#include "daemon/project_link.h"
#include "daemon/socket_client.h"
#include "session/serve_options.h"

enum { BACKLOG = 128, HUNG_UP_LOG_MS = 10000 };

/* If descriptors run out, a waiting connection would wake the loop again and again: it is accepted with the spare
 * descriptor and closed. */
static void refuse_by_spare(struct daemon *daemon) {
        fd_close(&daemon->spare_fd);
        int fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        fd_close(&fd);
        daemon->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        uint64_t now = loop_now_ms();
        if (now - daemon->hung_up_ms < HUNG_UP_LOG_MS)
                return;
        daemon->hung_up_ms = now;
        daemon_log("refused connections: out of descriptors; raise the limit of open files (ulimit -n)");
}

static void on_connection(void *context, uint32_t events) {
        struct daemon *daemon = context;
        (void) events;
        _cleanup_fd_ int fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
                refuse_by_spare(daemon);
                return;
        }
        struct ucred peer;
        socklen_t size = sizeof(peer);
        if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
                return;
        /* Mode 0600 implies it; this also holds if the mode of the directory was changed. */
        if (peer.uid != geteuid() && peer.uid != 0) {
                daemon_log("refused a connection of user %u", peer.uid);
                return;
        }
        if (peer_is_in_box(fd)) {
                daemon_log("refused a connection of process %d: it is in a box", (int) peer.pid);
                return;
        }
        struct err err;
        if (daemon->n_clients - daemon->n_channels >= DAEMON_CLIENTS_MAX)
                daemon_log("refused a connection: %d clients already", DAEMON_CLIENTS_MAX);
        else if (client_accept(daemon, take_fd(&fd), NULL, &err) < 0)
                daemon_log("%s", err.message);
}

static int make_parent(const char *path, bool is_runtime_dir, bool *ret_made, struct err *err) {
        char copy[512];
        (void) snprintf(copy, sizeof(copy), "%s", path);
        const char *parent = dirname(copy);
        if (is_runtime_dir)
                return runtime_dir_make(parent, err);
        *ret_made = mkdir(parent, 0700) == 0;
        return *ret_made || errno == EEXIST ? 0 : err_sys(err, errno, "making %s for the socket", parent);
}

int listener_open(struct daemon *daemon, struct err *err) {
        const char *path = daemon->manager.options->socket_path;
        if (make_parent(path, daemon->manager.options->socket_dir_is_ours, &daemon->made_socket_dir, err) < 0)
                return -1;
        daemon->listen_fd = unix_listener_open(path, "--socket-dir", BACKLOG, err);
        if (daemon->listen_fd < 0)
                return -1;
        if (*daemon->manager.options->socket_link &&
            project_link_make(daemon->manager.options->socket_link, path, err) < 0)
                return -1;
        daemon->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        daemon->listen_watch = loop_watch(daemon->manager.loop, daemon->listen_fd, EPOLLIN, on_connection, daemon);
        return daemon->listen_watch ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

void listener_close(struct daemon *daemon) {
        loop_unwatch(&daemon->listen_watch);
        if (daemon->listen_fd >= 0) {
                if (*daemon->manager.options->socket_link)
                        project_link_remove(daemon->manager.options->socket_link, daemon->manager.options->socket_path);
                (void) unlink(daemon->manager.options->socket_path);
        }
        fd_close(&daemon->listen_fd);
        fd_close(&daemon->spare_fd);
}

void listener_remove_dir(const struct daemon *daemon) {
        char copy[512];
        (void) snprintf(copy, sizeof(copy), "%s", daemon->manager.options->socket_path);
        if (daemon->made_socket_dir)
                (void) rmdir(dirname(copy));
}
