/* Connections to another Glovebox, made by a process of its own.
 *
 * Theory of operation. The daemon must not wait for names, certificates or a slow host, and a library that does all of
 * this has no place in a process that forks. So a helper process holds libcurl, which is loaded when it starts: nothing
 * else needs it. For each connection the daemon makes a pair of sockets and passes one end to the helper, which
 * connects to the remote, verifies its certificate, asks for "Upgrade: glovebox" with the key, and then moves bytes
 * both ways, as fast as the slower side takes them. What travels are the messages of docs/PROTOCOL.md. A connection that
 * cannot be made is answered with an ANSWER of request TUNNEL_NOTICE that says why; one that breaks just ends. If the
 * helper dies, all connections end, and the daemon starts another. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "engine/engine.h"

enum { TUNNEL_NOTICE = 0xffff, TUNNELS_MAX = 1024 };

struct tunnel {
        pid_t pid;
        int fd; /* readable only when the process is gone */
};

#define TUNNEL_DOWN ((struct tunnel) { 0, -1 })

/* Is this a URL that a key may be sent to? https, or http to this host itself. */
int tunnel_check_url(const char *url, struct err *err);

/* Call it first in main(): in the helper process it never returns. */
void tunnel_serve_if_asked(int argc, char **argv);

/* Starts the helper: this program once more, with an empty environment. `owner` is shown by ps. */
int tunnel_start(const struct engine_settings *settings, const char *owner, struct tunnel *ret_tunnel, struct err *err);
void tunnel_stop(struct tunnel *tunnel); /* safe on TUNNEL_DOWN */

/* Asks for a connection; *ret_fd is nonblocking, and may be written to at once. */
int tunnel_connect(const struct tunnel *tunnel, int *ret_fd, struct err *err);
