/* The first words between the host and the agent of another engine's box. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* Takes the connection that comes in on `listen_fd` before the deadline: the entry's, which becomes the agent's.
 * `is_alive` is asked now and then whether it is worth waiting; it fills err when not. With ret_listener_fd, the
 * proxy's socket comes along, with ret_workspace_fd a workspace that the box has by itself. Fills the control socket, blocking, and who is at its other end. */
int handshake_accept(int listen_fd, uint64_t deadline_ms, int (*is_alive)(void *context, struct err *err),
                     void *context, int *ret_control_fd, int *ret_listener_fd, int *ret_workspace_fd, struct err *err);
