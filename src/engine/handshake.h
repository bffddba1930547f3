/* The first words between the host and the agent of another engine's box. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* Accepts the connection of the entry, which becomes the agent's, on `listen_fd`, and reads its first words, all
 * before the deadline. While nobody has connected, `is_alive` is called now and then: when it fails, it has filled err, and this
 * fails too. With ret_listener_fd the entry sends the listening socket of the proxy first, with ret_workspace_fd a
 * workspace that exists in the box alone. Fills the control socket, which blocks. */
int handshake_accept(int listen_fd, uint64_t deadline_ms, int (*is_alive)(void *context, struct err *err),
                     void *context, int *ret_control_fd, int *ret_listener_fd, int *ret_workspace_fd, struct err *err);
