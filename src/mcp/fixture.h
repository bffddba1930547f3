/* Tools, prompts and resources with fixed texts, which the protocol's conformance tests require. Available only if the
 * daemon was started with GLOVEBOX_TEST_MCP_FIXTURES=1. */
#pragma once

#include "mcp/mcp.h"

/* True if the daemon was started for the conformance tests. */
bool fixture_is_enabled(void);

/* Each adds to a list or an object that is not empty; resources may be the first. */
void fixture_put_capabilities(const struct mcp_call *call, struct json_writer *members);
void fixture_put_tools(struct json_writer *members);
void fixture_put_resources(struct json_writer *members);
void fixture_put_templates(struct json_writer *members);

/* True: it is a fixture, and was or will be answered. */
bool fixture_handle(struct mcp_call *call, const struct mcp_message *message);
bool fixture_call_tool(struct mcp_call *call, const struct mcp_message *message, const char *name);
bool fixture_read_resource(struct mcp_call *call, const char *uri);
