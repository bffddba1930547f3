/* MCP on a connection of the daemon's own socket: what `glovebox mcp` relays from its standard input and output.
 *
 * The request {"op": "mcp", "name", "keep", and options of session.create} opens the channel. Messages follow as DATA
 * in both directions, each ended by a newline. END, or the end of the connection, closes it: runs with a waiting call
 * are interrupted, and the sandboxes of the channel are removed unless "keep" says otherwise. If the daemon exits, they
 * stay, and the relay opens a channel of the same name to the next one. An EVENT {"event": "run", "id", "run"} names
 * the run that a call waits for, so that it can be read again then. */
#pragma once

#include "daemon/socket_request.h"

extern const struct socket_row channel_rows[]; /* ended by a NULL name */
