/* Tasks (the extension of the modern era): a run that its client follows by polling. A task is a run in the journal, so
 * it is recorded before its client gets the id, and outlives the daemon; its id names the sandbox, the run, and when it
 * began. */
#pragma once

#include "mcp/mcp.h"

#define MCP_TASKS_EXTENSION "io.modelcontextprotocol/tasks"

/* Answers a call with a task for its run, which continues. */
void task_answer(struct mcp_call *call);

/* Writes what tasks/get and the answer above have in common: taskId, status, times. */
void task_put(const struct mcp_call *call, const char *status, int64_t updated_ms, struct json_writer *members);
