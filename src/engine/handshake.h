/* The first messages between the host and the agent of another engine's box. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* Accepts the connection of the entry on `listen_fd`; it becomes the agent's control socket. Reads the first messages,
 * all before the deadline. Until the entry connects, `is_alive` is called a few times a second; if it fails, it fills
 * err, and this fails too. With ret_workspace_fd the entry first sends a workspace that exists in the box only, and
 * with ret_listener_fd the listening socket of the proxy. Fills the control socket, which is blocking. */
int handshake_accept(int listen_fd, uint64_t deadline_ms, int (*is_alive)(void *context, struct err *err),
                     void *context, int *ret_control_fd, int *ret_listener_fd, int *ret_workspace_fd, struct err *err);
