/* One connection of a box through the proxy: a request, an address, bytes in both directions. */
#pragma once

#include "egress/proxy.h"

/* Takes the descriptor. */
void tunnel_open(struct guest *guest, int client_fd);
void tunnel_close(struct tunnel *tunnel);
