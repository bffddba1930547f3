/* One connection of a box through the proxy: a request, a connection to a server, and bytes in both directions. */
#pragma once

#include "egress/proxy.h"

/* Takes ownership of the descriptor. */
void tunnel_open(struct proxy_box *box, int client_fd);
void tunnel_close(struct tunnel *tunnel);
