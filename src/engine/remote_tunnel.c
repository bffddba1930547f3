/* The daemon's side of the helper process. */
#include "engine/remote_tunnel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "engine/remote_tunnel_settings.h"

static const struct helper_program_kind remote_tunnel_kind = {
        .argument = "remote-tunnel",
        .name = "remote",
        .settings_size = sizeof(struct remote_tunnel_settings),
};

int remote_tunnel_check_url(const char *url, struct err *err) {
        static const char *const here[] = { "127.0.0.1", "localhost", "[::1]" };
        if (strlen(url) >= REMOTE_TUNNEL_TEXT_MAX)
                return err_set(err, ERR_USAGE, "the URL of the remote is too long");
        if (strncasecmp(url, "https://", 8) == 0 && url[8] && !strchr(url, '@'))
                return 0;
        for (size_t i = 0; strncasecmp(url, "http://", 7) == 0 && i < ELEMENTS(here); i++) {
                size_t size = strlen(here[i]);
                if (strncasecmp(url + 7, here[i], size) == 0 && strchr(":/", url[7 + size]))
                        return 0;
        }
        return err_set(
                err, ERR_USAGE,
                "the URL of the remote, \"%.100s\", must begin with https://: otherwise the key could be read on "
                "the network; http:// is allowed for this host only (http://127.0.0.1:8080)",
                url);
}

void remote_tunnel_serve_if_asked(int argc, char **argv) {
        static struct remote_tunnel_settings settings;
        int orders_fd = helper_program_begin(&remote_tunnel_kind, argc, argv, &settings);
        if (orders_fd >= 0)
                remote_tunnel_run(&settings, orders_fd);
}

int remote_tunnel_start(const struct engine_settings *settings, const char *owner, struct helper_program *ret_tunnel,
                        struct err *err) {
        struct remote_tunnel_settings sent = { .timeout_ms = settings->remote_timeout_ms };
        (void) snprintf(sent.url, sizeof(sent.url), "%s", settings->remote_url);
        (void) snprintf(sent.key, sizeof(sent.key), "%s", settings->remote_key);
        (void) snprintf(sent.ca, sizeof(sent.ca), "%s", settings->remote_ca);
        int code = helper_program_start(&remote_tunnel_kind, &sent, owner, ret_tunnel, err);
        explicit_bzero(&sent, sizeof(sent));
        return code;
}

int remote_tunnel_connect(const struct helper_program *tunnel, int *ret_fd, struct err *err) {
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
