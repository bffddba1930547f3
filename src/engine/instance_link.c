/* The daemon's side of the helper process. */
#include "engine/instance_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "engine/instance_link_settings.h"

static const struct helper_program_kind link_kind = {
        .argument = "instance-links",
        .name = "instances",
        .settings_size = sizeof(struct instance_link_settings),
};

void instance_link_serve_if_asked(int argc, char **argv) {
        static struct instance_link_settings settings;
        int orders_fd = helper_program_begin(&link_kind, argc, argv, &settings);
        if (orders_fd >= 0)
                instance_link_run(&settings, orders_fd);
}

/* Variables by which the client of Incus finds its configuration and its server. */
static void export_environment(struct instance_link_settings *settings) {
        static const char *const names[] = { "PATH",          "HOME",        "USER",       "INCUS_CONF", "INCUS_DIR",
                                             "INCUS_PROJECT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY",   "TMPDIR" };
        for (size_t i = 0; i < ELEMENTS(names); i++) {
                const char *value = getenv(names[i]);
                size_t room = sizeof(settings->environment) - settings->environment_size;
                int size = value ? snprintf(settings->environment + settings->environment_size, room, "%s=%s", names[i],
                                            value)
                                 : -1;
                if (size >= 0 && (size_t) size < room)
                        settings->environment_size += (size_t) size + 1;
        }
}

int instance_link_start(const struct engine_settings *settings, const char *kernel_dir, const char *owner,
                        struct helper_program *ret_helper, struct err *err) {
        static struct instance_link_settings sent; /* large */
        memset(&sent, 0, sizeof(sent));
        (void) snprintf(sent.incus_socket, sizeof(sent.incus_socket), "%s", settings->incus_socket);
        (void) snprintf(sent.incus_remote, sizeof(sent.incus_remote), "%s", settings->incus_remote);
        (void) snprintf(sent.kernel_dir, sizeof(sent.kernel_dir), "%s", kernel_dir);
        ssize_t n = readlink("/proc/self/exe", sent.program, sizeof(sent.program) - 1);
        if (n < 0)
                return err_sys(err, errno, "finding this program");
        export_environment(&sent);
        return helper_program_start(&link_kind, &sent, owner, ret_helper, err);
}

int instance_link_connect(const struct helper_program *helper, const struct instance_order *order, int *ret_fd,
                          struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        fd_passing_refuse(ends[0]);
        int code = fd_passing_send(helper->fd, order, sizeof(*order), &ends[1], 1, MSG_DONTWAIT);
        fd_close(&ends[1]);
        if (code < 0) {
                fd_close(&ends[0]);
                return err_set(err, ERR_GONE, "the helper that connects to instances %s",
                               code == -EAGAIN ? "is busy" : "has died");
        }
        *ret_fd = ends[0];
        return 0;
}
