/* A channel: the protocol of the daemon's socket (docs/PROTOCOL.md) on a connection that a key opened over HTTP, with
 * "GET /channel" and "Upgrade: glovebox". Another Glovebox uses it (its engine `remote`). The rights and quotas of the
 * key hold as for REST: each request is checked here before it reaches an operation. */
#pragma once

#define CHANNEL_PROTOCOL "glovebox"
