/* Connections to another Glovebox, made by a helper process.
 *
 * Theory of operation. The daemon must not wait for DNS, certificates or a slow host, and a process that forks should
 * not contain a library that does all of this. So a helper process loads libcurl when it starts; no other process needs
 * it. For each connection the daemon makes a socket pair and passes one end to the helper. The helper connects to the
 * remote, verifies its certificate, requests "Upgrade: glovebox" with the key, and then moves bytes both ways, at the
 * pace of the slower side: the messages of docs/PROTOCOL.md. If the connection cannot be made, the helper sends an
 * ANSWER of request REMOTE_TUNNEL_NOTICE with the reason; a connection that breaks later just ends. If the helper dies,
 * all connections end, and the daemon starts another helper. */
#pragma once

#include "base/err.h"
#include "base/helper_program.h"
#include "engine/engine.h"

enum { REMOTE_TUNNEL_NOTICE = 0xffff, REMOTE_TUNNELS_MAX = 1024 };

/* Checks that a key may be sent to this URL: https, or http to this host. */
int remote_tunnel_check_url(const char *url, struct err *err);

/* Call it first in main(): in the helper process it never returns. */
void remote_tunnel_serve_if_asked(int argc, char **argv);

/* Starts the helper. ps shows `owner`. */
int remote_tunnel_start(const struct engine_settings *settings, const char *owner, struct helper_program *ret_tunnel,
                        struct err *err);

/* Requests a connection. *ret_fd is nonblocking and can be written to at once. */
int remote_tunnel_connect(const struct helper_program *tunnel, int *ret_fd, struct err *err);
