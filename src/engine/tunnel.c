/* The helper as the daemon sees it. */
#include "engine/tunnel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "base/priority.h"
#include "base/process_title.h"
#include "engine/tunnel_order.h"

/* The first argument, by which main() recognises the helper. */
static const char tunnel_argument[] = "remote-tunnel";

enum { ORDERS_FD = 3 };

int tunnel_check_url(const char *url, struct err *err) {
        static const char *const here[] = { "127.0.0.1", "localhost", "[::1]" };
        if (strlen(url) >= TUNNEL_TEXT_MAX)
                return err_set(err, ERR_USAGE, "the URL of the remote is too long");
        if (strncasecmp(url, "https://", 8) == 0 && url[8] && !strchr(url, '@'))
                return 0;
        for (size_t i = 0; strncasecmp(url, "http://", 7) == 0 && i < ELEMENTS(here); i++) {
                size_t size = strlen(here[i]);
                if (strncasecmp(url + 7, here[i], size) == 0 && strchr(":/", url[7 + size]))
                        return 0;
        }
        return err_set(err, ERR_USAGE,
                       "the URL of the remote, \"%.100s\", must begin with https://: the key would be read on the way; "
                       "http:// is good for this host alone (http://127.0.0.1:8080)",
                       url);
}

_Noreturn static void become_helper(int orders_fd, const char *owner) {
        char *argv[] = { (char[]) { "glovebox: remote" }, (char *) (uintptr_t) tunnel_argument,
                         (char *) (uintptr_t) owner, NULL };
        char *none[] = { NULL };
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 && dup2(null_fd, STDOUT_FILENO) >= 0 &&
            (orders_fd == ORDERS_FD ? fcntl(ORDERS_FD, F_SETFD, 0) : dup2(orders_fd, ORDERS_FD)) >= 0 &&
            syscall(SYS_close_range, ORDERS_FD + 1, ~0u, 0) == 0)
                (void) execve("/proc/self/exe", argv, none);
        _exit(EXIT_FAILURE);
}

void tunnel_serve_if_asked(int argc, char **argv) {
        static struct tunnel_order order;
        if (argc != 3 || strcmp(argv[1], tunnel_argument) != 0)
                return;
        argv = process_title_init(argc, argv);
        process_title_set("remote", argv[2]);
        if (fcntl(ORDERS_FD, F_SETFD, FD_CLOEXEC) < 0 ||
            recv(ORDERS_FD, &order, sizeof(order), 0) != (ssize_t) sizeof(order))
                _exit(EXIT_FAILURE); /* started by hand, or the parent is gone */
        tunnel_run(&order, ORDERS_FD);
}

int tunnel_start(const struct engine_settings *settings, const char *owner, struct tunnel *ret_tunnel,
                 struct err *err) {
        struct tunnel_order order = { .timeout_ms = settings->remote_timeout_ms };
        int ends[2];
        (void) snprintf(order.url, sizeof(order.url), "%s", settings->remote_url);
        (void) snprintf(order.key, sizeof(order.key), "%s", settings->remote_key);
        (void) snprintf(order.ca, sizeof(order.ca), "%s", settings->remote_ca);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        bool is_sent = send(ends[0], &order, sizeof(order), MSG_NOSIGNAL) == (ssize_t) sizeof(order);
        explicit_bzero(&order, sizeof(order));
        pid_t pid = is_sent ? fork() : -1;
        int fork_errno = errno;
        if (pid == 0) {
                priority_stand_apart();
                become_helper(ends[1], owner);
        }
        fd_close(&ends[1]);
        if (pid < 0) {
                fd_close(&ends[0]);
                return err_sys(err, fork_errno, "starting the helper that connects to the remote");
        }
        *ret_tunnel = (struct tunnel) { pid, ends[0] };
        return 0;
}

void tunnel_stop(struct tunnel *tunnel) {
        fd_close(&tunnel->fd);
        if (tunnel->pid > 0) {
                (void) kill(tunnel->pid, SIGKILL);
                (void) waitpid(tunnel->pid, NULL, 0);
        }
        *tunnel = TUNNEL_DOWN;
}

int tunnel_connect(const struct tunnel *tunnel, int *ret_fd, struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        fd_passing_refuse(ends[0]);
        int code = fd_passing_send(tunnel->fd, "c", 1, &ends[1], 1, MSG_DONTWAIT);
        fd_close(&ends[1]);
        if (code < 0) {
                fd_close(&ends[0]);
                return err_set(err, ERR_GONE, "the helper that connects to the remote %s",
                               code == -EAGAIN ? "is busy" : "has died");
        }
        *ret_fd = ends[0];
        return 0;
}
