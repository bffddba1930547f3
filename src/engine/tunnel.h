/* Connections to another Glovebox, made by a process of its own.
 *
 * Theory of operation. The daemon must not wait for names, certificates or a slow host, and a library that does all of
 * this has no place in a process that forks. So a helper process holds libcurl, which is loaded when it starts: nothing
 * else needs it. For each connection the daemon makes a pair of sockets and passes one end to the helper, which
 * connects to the remote, verifies its certificate, asks for "Upgrade: glovebox" with the key, and then moves bytes
 * both ways, as fast as the slower side takes them: the messages of docs/PROTOCOL.md. A connection that cannot be made
 * is answered with an ANSWER of request TUNNEL_NOTICE that says why; one that breaks just ends. If the helper dies, all
 * connections end, and the daemon starts another. */
#pragma once

#include "base/err.h"
#include "base/helper_program.h"
#include "engine/engine.h"

enum { TUNNEL_NOTICE = 0xffff, TUNNELS_MAX = 1024 };

/* Is this a URL that a key may be sent to? https, or http to this host itself. */
int tunnel_check_url(const char *url, struct err *err);

/* Call it first in main(): in the helper process it never returns. */
void tunnel_serve_if_asked(int argc, char **argv);

/* Starts the helper. `owner` is shown by ps. */
int tunnel_start(const struct engine_settings *settings, const char *owner, struct helper_program *ret_tunnel,
                 struct err *err);

/* Asks for a connection; *ret_fd is nonblocking, and may be written to at once. */
int tunnel_connect(const struct helper_program *tunnel, int *ret_fd, struct err *err);
