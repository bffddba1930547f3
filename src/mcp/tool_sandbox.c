/* Tools that make, list and close sandboxes. */
#include <stdio.h>
#include <string.h>

#include "mcp/ask.h"
#include "mcp/tool.h"
#include "store/registry.h"

enum { SHORT_HANDLE = 8 }; /* where a key, or a secret of the connection, protects it */

static void report_created(struct mcp_call *call, const char *text, size_t size) {
        char words[200];
        (void) text;
        (void) size;
        int n = snprintf(words, sizeof(words), "sandbox=\"%s\"", call->sandbox);
        mcp_call_say(call, words, (size_t) n, false);
}

void tool_create_sandbox(struct mcp_call *call, json_t *arguments) {
        (void) arguments;
        char id[27], name[TOOL_NAME_ROOM];
        struct err err;
        bool is_protected = call->peer->is_private || *call->peer->owner;
        if (registry_make_id(id, &err) == 0 && is_protected)
                id[SHORT_HANDLE] = '\0';
        char handle[40];
        (void) snprintf(handle, sizeof(handle), "sb-%s", id);
        if (tool_name_sandbox(call, handle, name, &err) < 0 ||
            (call->link->admit_sandbox && call->link->admit_sandbox(call, name, &err) < 0)) {
                mcp_call_refuse(call, &err);
                return;
        }
        ask_create(call, name, report_created);
}

struct sandbox_lines {
        struct json_writer plain;
        const char *prefix;
};

/* One line each. Of the operator's sessions, which people made by hand, only those of MCP are shown. */
static void add_line(void *context, const struct session_info *info) {
        struct sandbox_lines *lines = context;
        size_t skipped = strlen(lines->prefix);
        if (lines->plain.size >= MCP_TEXT_MAX || strncmp(info->name, lines->prefix, skipped) != 0)
                return;
        json_writer_put(&lines->plain, info->name + skipped, strlen(info->name) - skipped);
        json_writer_put_literal(&lines->plain, "  ");
        json_writer_put(&lines->plain, info->state, strlen(info->state));
        json_writer_put_literal(&lines->plain, "\n");
}

void tool_list_sandboxes(struct mcp_call *call, json_t *arguments) {
        struct sandbox_lines lines = { .prefix = call->peer->prefix };
        (void) arguments;
        ask_list(call, add_line, &lines);
        if (lines.plain.size == 0)
                json_writer_put_literal(&lines.plain, "none yet: the first call makes \"default\"");
        mcp_call_say(call, lines.plain.bytes ? lines.plain.bytes : "", lines.plain.size, false);
        json_writer_release(&lines.plain);
}

static void report_closed(struct mcp_call *call, const char *text, size_t size) {
        (void) text;
        (void) size;
        mcp_call_say(call, "closed", 6, false);
}

void tool_close_sandbox(struct mcp_call *call, json_t *arguments) {
        char name[TOOL_NAME_ROOM];
        struct err err;
        if (tool_name_sandbox(call, json_string_value(json_object_get(arguments, "sandbox")), name, &err) < 0 ||
            ask_require(call, name, &err) < 0)
                mcp_call_refuse(call, &err);
        else
                ask_remove(call, name, report_closed);
}
