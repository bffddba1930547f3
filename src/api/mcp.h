/* POST /mcp: the Model Context Protocol over HTTP (src/mcp), for the same keys, under the same rules as every route. */
#pragma once

struct service;

/* Releases all calls, also those whose runs continue: the service ends. */
void mcp_drop_all(struct service *service);
