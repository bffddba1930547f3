/* What the daemon tells the helper that makes connections, first of all. */
#pragma once

#include <stdint.h>

enum { TUNNEL_TEXT_MAX = 1024 };

struct tunnel_order {
        char url[TUNNEL_TEXT_MAX], key[TUNNEL_TEXT_MAX], ca[TUNNEL_TEXT_MAX];
        uint64_t timeout_ms;
};

/* Serves until the daemon is gone. */
_Noreturn void tunnel_run(const struct tunnel_order *order, int orders_fd);
