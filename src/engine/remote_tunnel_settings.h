/* The first message from the daemon to the helper that connects to a remote. */
#pragma once

#include <stdint.h>

enum { REMOTE_TUNNEL_TEXT_MAX = 1024 };

struct remote_tunnel_settings {
        char url[REMOTE_TUNNEL_TEXT_MAX], key[REMOTE_TUNNEL_TEXT_MAX], ca[REMOTE_TUNNEL_TEXT_MAX];
        uint64_t timeout_ms;
};

/* Serves until the daemon closes its end of orders_fd. */
_Noreturn void remote_tunnel_run(const struct remote_tunnel_settings *settings, int orders_fd);
