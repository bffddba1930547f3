/* The daemon's connections to another Glovebox: the helper that makes them (engine/tunnel.h), and those that wait for
 * the next request. Each request has a connection for itself while it lasts, so a slow reader delays no other
 * request. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/loop.h"
#include "engine/tunnel.h"

struct session_manager;

enum { REMOTE_IDLE_MAX = 16 };

struct remote_idle {
        struct session_manager *manager;
        int fd; /* -1: none */
        struct loop_watch *watch;
};

struct remote_link {
        struct helper_program tunnel;
        struct loop_watch *watch;
        struct remote_idle idle[REMOTE_IDLE_MAX];
};

void remote_link_init(struct session_manager *manager);

/* At the start of a daemon whose engine is remote: checks that the remote answers and accepts the key. Blocks. */
int remote_link_probe(const struct session_manager *manager, struct err *err);

/* Returns a connection, reused or new (*ret_is_fresh), which the caller owns. */
int remote_link_take(struct session_manager *manager, int *ret_fd, bool *ret_is_fresh, struct err *err);

/* Takes back a connection without an open request. */
void remote_link_give(struct session_manager *manager, int fd);

void remote_link_stop(struct session_manager *manager);
