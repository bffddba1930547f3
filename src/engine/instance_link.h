/* Connections to the Gloveboxes in instances (instance.h), made by a helper process.
 *
 * Theory of operation. The daemon passes one end of a socket pair to the helper, with the name of an instance. The
 * helper forks a process for each connection. This process makes the instance if the session has none yet, starts it if
 * it has stopped, and runs a program whose standard input and output are a connection into it. Then it moves bytes both
 * ways: the messages of docs/PROTOCOL.md. If the connection fails, it sends the reason as remote_tunnel.h does
 * (REMOTE_TUNNEL_NOTICE). While one connection makes the instance of a session, it holds a lock on the session's
 * marker, and other connections to that session wait. The helper and its children end with the daemon. An unfinished
 * instance is made again for the next connection, or swept. */
#pragma once

#include "base/err.h"
#include "base/helper_program.h"
#include "engine/instance.h"

/* Call it first in main(): in the helper process it never returns. */
void instance_link_serve_if_asked(int argc, char **argv);

/* Starts the helper. ps shows `owner`. */
int instance_link_start(const struct engine_settings *settings, const char *kernel_dir, const char *owner,
                        struct helper_program *ret_helper, struct err *err);

/* Requests a connection. *ret_fd is nonblocking and can be written to at once. */
int instance_link_connect(const struct helper_program *helper, const struct instance_order *order, int *ret_fd,
                          struct err *err);
