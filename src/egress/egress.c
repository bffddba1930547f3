/* The proxy as its parent sees it. */
#include "egress/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/priority.h"
#include "base/process_title.h"
#include "egress/order.h"
#include "egress/proxy.h"

/* The first argument, by which main() recognises the proxy. */
static const char proxy_argument[] = "egress-proxy";

enum { ORDERS_FD = 3 };

/* Executes the program again, with an empty environment: the process that parses the bytes of boxes holds no memory of
 * its parent, such as keys and passwords. */
_Noreturn static void become_proxy(int orders_fd, const char *owner) {
        char *argv[] = { (char[]) { "glovebox: proxy" }, (char *) (uintptr_t) proxy_argument,
                         (char *) (uintptr_t) owner, NULL };
        char *none[] = { NULL };
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 && dup2(null_fd, STDOUT_FILENO) >= 0 &&
            (orders_fd == ORDERS_FD ? fcntl(ORDERS_FD, F_SETFD, 0) : dup2(orders_fd, ORDERS_FD)) >= 0 &&
            syscall(SYS_close_range, ORDERS_FD + 1, ~0u, 0) == 0)
                (void) execve("/proc/self/exe", argv, none);
        _exit(EXIT_FAILURE);
}

void egress_serve_if_asked(int argc, char **argv) {
        static struct egress_operator settings;
        if (argc != 3 || strcmp(argv[1], proxy_argument) != 0)
                return;
        argv = process_title_init(argc, argv);
        process_title_set("proxy", argv[2]);
        if (fcntl(ORDERS_FD, F_SETFD, FD_CLOEXEC) < 0 ||
            recv(ORDERS_FD, &settings, sizeof(settings), 0) != (ssize_t) sizeof(settings))
                _exit(EXIT_FAILURE); /* started by hand, or the parent is gone */
        proxy_run(&settings, ORDERS_FD);
}

int egress_start(const struct egress_operator *settings, const char *owner, struct egress *ret_egress,
                 struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        /* The first message; orders follow. */
        bool is_sent = send(ends[0], settings, sizeof(*settings), MSG_NOSIGNAL) == (ssize_t) sizeof(*settings);
        pid_t pid = is_sent ? fork() : -1;
        int fork_errno = errno;
        if (pid == 0) {
                priority_stand_apart();
                become_proxy(ends[1], owner);
        }
        fd_close(&ends[1]);
        if (pid < 0) {
                fd_close(&ends[0]);
                return err_sys(err, fork_errno, "starting the proxy");
        }
        *ret_egress = (struct egress) { pid, ends[0] };
        return 0;
}

void egress_stop(struct egress *egress) {
        fd_close(&egress->fd);
        if (egress->pid > 0) {
                (void) kill(egress->pid, SIGKILL);
                (void) waitpid(egress->pid, NULL, 0);
        }
        *egress = EGRESS_DOWN;
}

int egress_admit(struct egress *egress, int listener_fd, int pidfd, const struct egress_rules *rules, struct err *err) {
        const int fds[ORDER_FDS] = { [ORDER_LISTENER] = listener_fd, [ORDER_PIDFD] = pidfd };
        int code = fd_passing_send(egress->fd, rules, order_size(rules), fds, ORDER_FDS, MSG_DONTWAIT);
        if (code == -EAGAIN)
                return err_set(err, ERR_BUSY, "the proxy is busy");
        if (code == -EPIPE || code == -ECONNRESET)
                return err_set(err, ERR_GONE, "the proxy has died");
        return code < 0 ? err_sys(err, -code, "giving a box to the proxy") : 0;
}
