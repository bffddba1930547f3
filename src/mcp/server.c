#include "mcp/server.h"

#include <string.h>

#include "base/memory.h"
#include "mcp/fixture.h"
#include "mcp/task.h"

struct method {
        const char *name;
        int eras;
        void (*run)(struct mcp_call *call, const struct mcp_message *message);
        const char *named_by; /* member of params that the header Mcp-Name repeats */
};

static void put_capabilities(const struct mcp_call *call, struct json_writer *members) {
        json_writer_put_literal(members, "\"capabilities\":{\"tools\":{},\"resources\":{}");
        if (call->peer->has_fixtures)
                fixture_put_capabilities(call, members);
        if (call->era == MCP_MODERN)
                json_writer_put_literal(members, ",\"extensions\":{\"" MCP_TASKS_EXTENSION "\":{}}");
        json_writer_put_literal(members, "}");
}

static void put_instructions(const struct mcp_call *call, struct json_writer *members) {
        static const char words[] =
                "Runs Python and shell commands in sealed sandboxes. Leave \"sandbox\" out to use the default one; its "
                "variables and files stay between calls. A sandbox runs one thing at a time. Files are in /workspace; "
                "save results in /workspace/artifacts. What is not installed: install_packages. ";
        _cleanup_json_writer_ struct json_writer plain = { 0 };
        json_writer_put(&plain, words, sizeof(words) - 1);
        json_writer_put(&plain, call->peer->place, strlen(call->peer->place));
        json_writer_put_literal(members, ",\"instructions\":");
        json_writer_put_string(members, plain.bytes, plain.size);
}

static void server_initialize(struct mcp_call *call, const struct mcp_message *message) {
        static const char *const known[] = { MCP_LEGACY_VERSION, MCP_OLDEST_VERSION };
        const char *asked = json_string_value(json_object_get(message->params, "protocolVersion"));
        const char *version = known[0];
        struct mcp_error error;
        if (!asked) {
                (void) mcp_error_set(&error, MCP_INVALID_PARAMS, 400, "\"protocolVersion\" must be given, as text");
                mcp_call_fail(call, &error);
                return;
        }
        for (size_t i = 0; i < ELEMENTS(known); i++)
                if (strcmp(known[i], asked) == 0)
                        version = known[i];
        _cleanup_json_writer_ struct json_writer members = { 0 };
        json_writer_put_literal(&members, "\"protocolVersion\":");
        json_writer_put_string(&members, version, strlen(version));
        json_writer_put_literal(&members, ",");
        put_capabilities(call, &members);
        json_writer_put_literal(&members, ",\"serverInfo\":" MCP_SERVER_INFO);
        put_instructions(call, &members);
        mcp_call_result(call, &members, NULL);
}

static void server_discover(struct mcp_call *call, const struct mcp_message *message) {
        (void) message;
        _cleanup_json_writer_ struct json_writer members = { 0 };
        json_writer_put_literal(&members, "\"supportedVersions\":[\"" MCP_MODERN_VERSION "\",\"" MCP_LEGACY_VERSION
                                          "\",\"" MCP_OLDEST_VERSION "\"],");
        put_capabilities(call, &members);
        put_instructions(call, &members);
        server_put_caching(call, &members, 60000, false);
        mcp_call_result(call, &members, NULL);
}

static void server_ping(struct mcp_call *call, const struct mcp_message *message) {
        (void) message;
        const struct json_writer nothing = { 0 };
        mcp_call_result(call, &nothing, NULL);
}

static const struct method methods[] = {
        { "initialize", MCP_LEGACY, server_initialize, NULL },
        { "ping", MCP_LEGACY, server_ping, NULL },
        { "server/discover", MCP_MODERN, server_discover, NULL },
        { "tools/list", MCP_BOTH, tool_list, NULL },
        { "tools/call", MCP_BOTH, tool_call, "name" },
        { "resources/list", MCP_BOTH, resource_list, NULL },
        { "resources/templates/list", MCP_BOTH, resource_list_templates, NULL },
        { "resources/read", MCP_BOTH, resource_read, "uri" },
        { "tasks/get", MCP_MODERN, task_get, "taskId" },
        { "tasks/update", MCP_MODERN, task_update, "taskId" },
        { "tasks/cancel", MCP_MODERN, task_cancel, "taskId" },
        { "prompts/get", 0, NULL, "name" }, /* there are no prompts; the header is checked all the same */
};

static const struct method *find_method(const char *name) {
        for (size_t i = 0; i < ELEMENTS(methods); i++)
                if (strcmp(methods[i].name, name) == 0)
                        return &methods[i];
        return NULL;
}

const char *server_named_by(const char *method) {
        const struct method *found = find_method(method);
        return found ? found->named_by : NULL;
}

void server_handle(struct mcp_call *call, const struct mcp_message *message) {
        const struct method *method = find_method(message->method);
        struct mcp_error error;
        if (method && (method->eras & (int) call->era))
                method->run(call, message);
        else if (!call->peer->has_fixtures || !fixture_handle(call, message)) {
                (void) mcp_error_set(&error, MCP_METHOD_NOT_FOUND, 404, "there is no method \"%.100s\" here",
                                     message->method);
                mcp_call_fail(call, &error);
        }
}

void server_put_caching(const struct mcp_call *call, struct json_writer *members, unsigned ttl_ms, bool is_public) {
        if (call->era != MCP_MODERN)
                return;
        json_writer_put_literal(members, ",\"ttlMs\":");
        json_writer_put_number(members, ttl_ms);
        if (is_public)
                json_writer_put_literal(members, ",\"cacheScope\":\"public\"");
        else
                json_writer_put_literal(members, ",\"cacheScope\":\"private\"");
}

bool server_check_cursor(struct mcp_call *call, const struct mcp_message *message) {
        struct mcp_error error;
        if (!json_object_get(message->params, "cursor"))
                return true;
        (void) mcp_error_set(&error, MCP_INVALID_PARAMS, 200, "the cursor is not one of this server's");
        mcp_call_fail(call, &error);
        return false;
}
