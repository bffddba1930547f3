/* The methods of the server: one table, one row each. */
#pragma once

#include "mcp/mcp.h"

#define MCP_SERVER_INFO "{\"name\":\"glovebox\",\"title\":\"Glovebox\",\"version\":\"" GLOVEBOX_VERSION "\"}"

/* Finds the method and carries it out. The call may be freed by this. */
void server_handle(struct mcp_call *call, const struct mcp_message *message);

/* Which member of params a client repeats in the header Mcp-Name, or NULL. */
const char *server_named_by(const char *method);

/* ---- handlers in other files ---- */

void tool_list(struct mcp_call *call, const struct mcp_message *message);
void tool_call(struct mcp_call *call, const struct mcp_message *message);
void resource_list(struct mcp_call *call, const struct mcp_message *message);
void resource_list_templates(struct mcp_call *call, const struct mcp_message *message);
void resource_read(struct mcp_call *call, const struct mcp_message *message);
void task_get(struct mcp_call *call, const struct mcp_message *message);
void task_update(struct mcp_call *call, const struct mcp_message *message);
void task_cancel(struct mcp_call *call, const struct mcp_message *message);

/* The members that lists and reads have in the modern era. */
void server_put_caching(const struct mcp_call *call, struct json_writer *members, unsigned ttl_ms, bool is_public);

/* There is one page, so any cursor is wrong. False: an error was sent. */
bool server_check_cursor(struct mcp_call *call, const struct mcp_message *message);
