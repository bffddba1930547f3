/* Standard input and output of `glovebox mcp`, relayed to an MCP channel of the daemon (mcp/channel.h). */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "client/socket_place.h"

/* Relays until standard input ends or the output has no reader: 0. -1: no daemon can be had. `opening` is the request
 * that opens the channel, borrowed. */
int mcp_relay_run(const struct socket_place *place, json_t *opening, struct err *err);
