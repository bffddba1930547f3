/* POST /mcp: the Model Context Protocol over HTTP (src/mcp), for the same keys, under the same rules as every route. */
#pragma once

struct service;

/* Lets go of all calls, also of those whose runs go on: the service ends. */
void mcp_drop_all(struct service *service);
