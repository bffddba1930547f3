/* The proxy as its parent sees it. */
#include "egress/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/passing.h"
#include "egress/order.h"
#include "egress/proxy.h"

int egress_start(const struct egress_operator *operator, struct egress * ret_egress, struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        pid_t pid = fork();
        if (pid == 0) {
                int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
                (void) dup2(null_fd, STDIN_FILENO);
                (void) dup2(null_fd, STDOUT_FILENO);
                (void) dup2(ends[1], 3);
                (void) syscall(SYS_close_range, 4, ~0u, 0);
                (void) fcntl(3, F_SETFD, FD_CLOEXEC);
                proxy_run(operator, 3);
        }
        int fork_errno = errno;
        fd_close(&ends[1]);
        if (pid < 0) {
                fd_close(&ends[0]);
                return err_sys(err, fork_errno, "starting the proxy");
        }
        *ret_egress = (struct egress){ pid, ends[0] };
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
        int code = passing_send(egress->fd, rules, order_size(rules), fds, ORDER_FDS, MSG_DONTWAIT);
        if (code == -EAGAIN)
                return err_set(err, ERR_BUSY, "the proxy is busy");
        if (code == -EPIPE || code == -ECONNRESET)
                return err_set(err, ERR_GONE, "the proxy has died");
        return code < 0 ? err_sys(err, -code, "giving a box to the proxy") : 0;
}
