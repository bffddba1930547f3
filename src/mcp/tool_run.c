/* Tools that run something, or read a run again. */
#include <string.h>

#include "base/loop.h"
#include "mcp/ask.h"
#include "mcp/content.h"
#include "mcp/slice.h"
#include "mcp/tool.h"

enum { RUN_TIMEOUT_MS = 3600 * 1000 };

typedef void ask_run(struct mcp_call *call, const char *name, json_t *what, uint64_t timeout_ms, ask_finish *finish);

/* An unknown handle is refused; the first run makes only the default sandbox. */
static int prepare_run(struct mcp_call *call, json_t *arguments, char ret_name[static TOOL_NAME_ROOM],
                       struct err *err) {
        if (tool_name_sandbox(call, json_string_value(json_object_get(arguments, "sandbox")), ret_name, err) < 0 ||
            (strcmp(call->sandbox, "default") != 0 && ask_require(call, ret_name, err) < 0))
                return -1;
        if (call->link->admit_sandbox && call->link->admit_sandbox(call, ret_name, err) < 0)
                return -1;
        double timeout_s = json_number_value(json_object_get(arguments, "timeout_s"));
        if (ask_check_timeout(call, (uint64_t) (timeout_s * 1000), err) < 0)
                return -1;
        return call->link->count_run ? call->link->count_run(call, err) : 0;
}

/* A run continues after the client's timeout, so the usual limit of a sandbox, a minute, would be too short. 0: the
 * sandbox's own limit, if the caller may not have more. */
static uint64_t timeout_of(const struct mcp_call *call, const json_t *arguments) {
        const json_t *given = json_object_get(arguments, "timeout_s");
        struct err ignored;
        if (given)
                return (uint64_t) (json_number_value(given) * 1000);
        return ask_check_timeout(call, RUN_TIMEOUT_MS, &ignored) == 0 ? RUN_TIMEOUT_MS : 0;
}

/* At the client's timeout the run continues, and the answer explains how to read it. */
static void begin_run(struct mcp_call *call, json_t *arguments, ask_run *ask, const char *what, bool can_go_on) {
        char name[TOOL_NAME_ROOM];
        struct err err;
        bool in_background = json_is_true(json_object_get(arguments, "background"));
        if (prepare_run(call, arguments, name, &err) < 0) {
                mcp_call_refuse(call, &err);
                return;
        }
        call->is_run = true;
        call->output.keeps_end = true;
        call->began_ms = loop_wall_ms();
        if (can_go_on)
                mcp_call_wait(call, in_background ? 0 : call->takes_tasks ? MCP_TASK_YIELD_MS : MCP_YIELD_MS);
        ask(call, name, json_object_get(arguments, what), timeout_of(call, arguments), content_answer_run);
}

void tool_run_python(struct mcp_call *call, json_t *arguments) {
        begin_run(call, arguments, ask_python, "code", true);
}

void tool_run_shell(struct mcp_call *call, json_t *arguments) {
        begin_run(call, arguments, ask_shell, "command", true);
}

/* An install cannot be read again, so it is waited for. */
void tool_install(struct mcp_call *call, json_t *arguments) {
        begin_run(call, arguments, ask_install, "packages", false);
}

void tool_read_output(struct mcp_call *call, json_t *arguments) {
        char name[TOOL_NAME_ROOM];
        struct err err;
        json_t *wait = json_object_get(arguments, "wait_s");
        if (tool_name_run(call, json_string_value(json_object_get(arguments, "run_id")), name, &err) < 0 ||
            ask_require(call, name, &err) < 0) {
                mcp_call_refuse(call, &err);
                return;
        }
        call->output.skip = (uint64_t) json_integer_value(json_object_get(arguments, "offset"));
        mcp_call_wait(call, wait ? (uint64_t) (json_number_value(wait) * 1000) : 5000);
        ask_read_run(call, name, call->run_id, content_answer_run);
}

static void report_interrupted(struct mcp_call *call, const char *text, size_t size) {
        bool was_on = slice_is_true(slice_get((struct slice) { text, size }, "interrupted"));
        const char *words = was_on ? "interrupted" : "nothing was running";
        mcp_call_say(call, words, strlen(words), false);
}

void tool_interrupt(struct mcp_call *call, json_t *arguments) {
        const char *run = json_string_value(json_object_get(arguments, "run_id"));
        char name[TOOL_NAME_ROOM];
        struct err err;
        int code = run ? tool_name_run(call, run, name, &err)
                       : tool_name_sandbox(call, json_string_value(json_object_get(arguments, "sandbox")), name, &err);
        if (code < 0 || ask_require(call, name, &err) < 0)
                mcp_call_refuse(call, &err);
        else if (run)
                ask_cancel_run(call, name, call->run_id, report_interrupted);
        else
                ask_interrupt(call, name, report_interrupted);
}
