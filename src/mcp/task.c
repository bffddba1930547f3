#include "mcp/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mcp/ask.h"
#include "mcp/content.h"
#include "mcp/server.h"
#include "mcp/tool.h"

enum { POLL_MS = 1000, TASK_ID_MAX = 200 };

static void put_time(struct json_writer *members, const char *key, int64_t wall_ms) {
        char text[80];
        struct tm parts;
        time_t seconds = (time_t) (wall_ms / 1000);
        (void) gmtime_r(&seconds, &parts);
        size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
        (void) snprintf(text + n, sizeof(text) - n, ".%03dZ", (int) (wall_ms % 1000));
        json_writer_put_literal(members, ",\"");
        json_writer_put(members, key, strlen(key));
        json_writer_put_literal(members, "\":");
        json_writer_put_string(members, text, strlen(text));
}

void task_put(const struct mcp_call *call, const char *status, int64_t updated_ms, struct json_writer *members) {
        char id[TASK_ID_MAX + 1], name[160];
        content_name_run(call, name, sizeof(name));
        (void) snprintf(id, sizeof(id), "%s.%" PRId64, name, call->began_ms);
        json_writer_put(members, ",", members->size > 0);
        json_writer_put_literal(members, "\"taskId\":");
        json_writer_put_string(members, id, strlen(id));
        json_writer_put_literal(members, ",\"status\":");
        json_writer_put_string(members, status, strlen(status));
        put_time(members, "createdAt", call->began_ms);
        put_time(members, "lastUpdatedAt", updated_ms);
        json_writer_put_literal(members, ",\"ttlMs\":null,\"pollIntervalMs\":");
        json_writer_put_number(members, POLL_MS);
}

void task_answer(struct mcp_call *call) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        json_writer_put_literal(&members, "\"resultType\":\"task\"");
        task_put(call, "working", call->began_ms, &members);
        mcp_call_result(call, &members, NULL);
}

/* ---- methods ---- */

/* The session's name, and the call's run and time, of a task's id. False: that was answered. */
static bool take_id(struct mcp_call *call, const struct mcp_message *message, char ret_name[static TOOL_NAME_ROOM]) {
        const char *id = json_string_value(json_object_get(message->params, "taskId"));
        char run[TASK_ID_MAX + 1];
        const char *dot = id ? strrchr(id, '.') : NULL;
        struct mcp_error error;
        struct err err;
        call->is_task = true;
        if (!call->takes_tasks) {
                (void) mcp_error_set(&error, MCP_MISSING_CAPABILITY, 400,
                                     "the client does not declare the extension " MCP_TASKS_EXTENSION);
                error.data = json_pack("{s:{s:{s:{}}}}", "requiredCapabilities", "extensions", MCP_TASKS_EXTENSION);
                mcp_call_fail(call, &error);
                return false;
        }
        if (dot && strlen(id) <= TASK_ID_MAX && strspn(dot + 1, "0123456789") == strlen(dot + 1) && dot[1] &&
            strlen(dot + 1) < 16) {
                memcpy(run, id, (size_t) (dot - id));
                run[dot - id] = '\0';
                call->began_ms = strtoll(dot + 1, NULL, 10);
                if (tool_name_run(call, run, ret_name, &err) == 0 && ask_require(call, ret_name, &err) == 0)
                        return true;
        }
        (void) mcp_error_set(&error, MCP_INVALID_PARAMS, 200, "there is no task of this id");
        mcp_call_fail(call, &error);
        return false;
}

/* Answers at the next iteration of the loop with the run's result, or that it is active. */
void task_get(struct mcp_call *call, const struct mcp_message *message) {
        char name[TOOL_NAME_ROOM];
        if (!take_id(call, message, name))
                return;
        call->output.keeps_end = true;
        mcp_call_wait(call, 0);
        ask_read_run(call, name, call->run_id, content_answer_run);
}

static void answer_nothing(struct mcp_call *call, const char *text, size_t size) {
        (void) text;
        (void) size;
        const struct json_writer nothing = { 0 };
        mcp_call_result(call, &nothing, NULL);
}

void task_cancel(struct mcp_call *call, const struct mcp_message *message) {
        char name[TOOL_NAME_ROOM];
        if (take_id(call, message, name))
                ask_cancel_run(call, name, call->run_id, answer_nothing);
}

/* No task ever asks for input. */
void task_update(struct mcp_call *call, const struct mcp_message *message) {
        char name[TOOL_NAME_ROOM];
        if (take_id(call, message, name))
                answer_nothing(call, NULL, 0);
}
