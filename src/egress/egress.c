/* The parent's side of the proxy. */
#include "egress/egress.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/fd_passing.h"
#include "egress/order.h"
#include "egress/proxy.h"

static const struct helper_program_kind proxy_kind = {
        .argument = "egress-proxy",
        .name = "proxy",
        .settings_size = sizeof(struct egress_operator),
};

void egress_serve_if_asked(int argc, char **argv) {
        static struct egress_operator settings;
        int orders_fd = helper_program_begin(&proxy_kind, argc, argv, &settings);
        if (orders_fd >= 0)
                proxy_run(&settings, orders_fd);
}

int egress_start(const struct egress_operator *settings, const char *owner, struct helper_program *ret_proxy,
                 struct err *err) {
        return helper_program_start(&proxy_kind, settings, owner, ret_proxy, err);
}

int egress_admit(const struct helper_program *proxy, int listener_fd, int pidfd, const struct egress_rules *rules,
                 struct err *err) {
        const int fds[ORDER_FDS] = { [ORDER_LISTENER] = listener_fd, [ORDER_PIDFD] = pidfd };
        int code = fd_passing_send(proxy->fd, rules, order_size(rules), fds, ORDER_FDS, MSG_DONTWAIT);
        if (code == -EAGAIN)
                return err_set(err, ERR_BUSY, "the proxy is busy");
        if (code == -EPIPE || code == -ECONNRESET)
                return err_set(err, ERR_GONE, "the proxy has died");
        return code < 0 ? err_sys(err, -code, "passing a box to the proxy") : 0;
}
