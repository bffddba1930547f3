/* Tools, prompts and resources with fixed texts, which the protocol's conformance tests require. Available only if the
 * daemon was started with GLOVEBOX_TEST_MCP_FIXTURES=1. */
#pragma once

#include "mcp/mcp.h"

/* Each adds to a list or an object that has something in it already, but for resources. */
void fixture_put_capabilities(const struct mcp_call *call, struct json_writer *members);
void fixture_put_tools(struct json_writer *members);
void fixture_put_resources(struct json_writer *members);
void fixture_put_templates(struct json_writer *members);

/* True: it was one of them, and is answered or will be. */
bool fixture_handle(struct mcp_call *call, const struct mcp_message *message);
bool fixture_call_tool(struct mcp_call *call, const struct mcp_message *message, const char *name);
bool fixture_read_resource(struct mcp_call *call, const char *uri);
