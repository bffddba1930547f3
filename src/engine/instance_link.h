/* Connections to the Gloveboxes in instances (instance.h), made by a process of its own.
 *
 * Theory of operation. The daemon passes one end of a pair of sockets to the helper, with the name of an instance. The
 * helper forks a process for each, which makes the instance if the session has none yet, starts it if it has stopped,
 * runs the program whose standard input and output lead into it, and moves bytes both ways: the messages of
 * docs/PROTOCOL.md. A connection that cannot be made is answered as those of tunnel.h are (TUNNEL_NOTICE). Two
 * connections to one session wait for each other while its instance is made: its marker is locked. All of it ends with
 * the daemon; an instance that was half made then is made again, or swept up. */
#pragma once

#include "base/err.h"
#include "base/helper_program.h"
#include "engine/instance.h"

/* Call it first in main(): in the helper process it never returns. */
void instance_link_serve_if_asked(int argc, char **argv);

/* Starts the helper. `owner` is shown by ps. */
int instance_link_start(const struct engine_settings *settings, const char *kernel_dir, const char *owner,
                        struct helper_program *ret_helper, struct err *err);

/* Asks for a connection; *ret_fd is nonblocking, and may be written to at once. */
int instance_link_connect(const struct helper_program *helper, const struct instance_order *order, int *ret_fd,
                          struct err *err);
