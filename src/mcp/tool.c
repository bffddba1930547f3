#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "mcp/fixture.h"
#include "mcp/server.h"
#include "store/registry.h"

#define SANDBOX { .name = "sandbox", .about = "handle from create_sandbox; the default one if left out", .max = 64 }
#define RUN_HOW                                                                                                        \
        SANDBOX,                                                                                                       \
                { .name = "timeout_s",                                                                                 \
                  .kind = TOOL_NUMBER,                                                                                 \
                  .min = 0.01,                                                                                         \
                  .max = 86400,                                                                                        \
                  .about = "stop it after so many seconds; 3600 if left out" },                                        \
        {                                                                                                              \
                .name = "background", .kind = TOOL_TRUTH,                                                              \
                .about = "return at once with a run_id for read_output; later runs in this sandbox wait for it"        \
        }

const struct mcp_tool tools[] = {
        { .name = "run_python",
          .title = "Run Python",
          .describes_place = true,
          .run = tool_run_python,
          .about =
                  "Run Python code. Variables, imports and files stay for the next call. Returns what it prints, the "
                  "value of the last expression, figures as images (saved as figure-N.png, too), and links to files in "
                  "/workspace/artifacts, which the user can open. After 45 s it goes on in the background.",
          .arguments = { { .name = "code", .is_required = true }, RUN_HOW } },
        { .name = "run_shell",
          .title = "Run a shell command",
          .describes_place = true,
          .run = tool_run_shell,
          .about =
                  "Run a shell command in /workspace. Standard input is empty. Returns its output and, when it is not 0, "
                  "its exit status. After 45 s it goes on in the background.",
          .arguments = { { .name = "command", .is_required = true }, RUN_HOW } },
        { .name = "read_file",
          .title = "Read a file",
          .hints = TOOL_READS,
          .run = tool_read_file,
          .about = "Read a text file or an image below /workspace.",
          .arguments = { { .name = "path", .is_required = true, .max = 4095 },
                         { .name = "line", .kind = TOOL_INTEGER, .min = 1, .max = 1e9, .about = "first line wanted" },
                         { .name = "lines", .kind = TOOL_INTEGER, .min = 1, .max = 1e6, .about = "how many" },
                         SANDBOX } },
        { .name = "write_file",
          .title = "Write a file",
          .hints = TOOL_IDEMPOTENT,
          .run = tool_write_file,
          .about = "Write a whole file below /workspace; directories are made.",
          .arguments = { { .name = "path", .is_required = true, .max = 4095 },
                         { .name = "content", .is_required = true },
                         { .name = "base64", .kind = TOOL_TRUTH, .about = "content is base64 of the bytes" },
                         SANDBOX } },
        { .name = "list_files",
          .title = "List files",
          .hints = TOOL_READS,
          .run = tool_list_files,
          .about = "List a directory below /workspace.",
          .arguments = { { .name = "path", .max = 4095, .about = "/workspace if left out" }, SANDBOX } },
        { .name = "install_packages",
          .title = "Install Python packages",
          .hints = TOOL_IDEMPOTENT | TOOL_OPEN_WORLD,
          .run = tool_install,
          .about =
                  "Install Python packages by name (\"attrs>=23\"), for run_python and run_shell, also where the sandbox has "
                  "no network. May take minutes.",
          .arguments = { { .name = "packages", .kind = TOOL_TEXTS, .is_required = true }, SANDBOX } },
        { .name = "read_output",
          .title = "Read a run's output",
          .hints = TOOL_READS,
          .run = tool_read_output,
          .about = "Read a run's output from a byte on: of one in the background, or what was left out. At the end of "
                   "the run its result follows. To look for a line, write the output to a file and use read_file.",
          .arguments = { { .name = "run_id", .is_required = true, .max = 160 },
                         { .name = "offset",
                           .kind = TOOL_INTEGER,
                           .min = 0,
                           .max = 1e12,
                           .about = "first byte wanted; 0 if left out" },
                         { .name = "wait_s",
                           .kind = TOOL_NUMBER,
                           .min = 0,
                           .max = 50,
                           .about = "wait up to so long for its end; 5 if left out" } } },
        { .name = "interrupt",
          .title = "Interrupt a run",
          .hints = TOOL_IDEMPOTENT,
          .run = tool_interrupt,
          .about = "Interrupt the run that is on, or the one named. Variables stay.",
          .arguments = { { .name = "run_id", .max = 160 }, SANDBOX } },
        { .name = "create_sandbox",
          .title = "Create a sandbox",
          .hints = TOOL_HARMLESS,
          .run = tool_create_sandbox,
          .about = "Make another sandbox, apart from the default one, and return its handle." },
        { .name = "list_sandboxes",
          .title = "List sandboxes",
          .hints = TOOL_READS,
          .run = tool_list_sandboxes,
          .about = "List the sandboxes: handle and state." },
        { .name = "close_sandbox",
          .title = "Close a sandbox",
          .hints = TOOL_IDEMPOTENT,
          .run = tool_close_sandbox,
          .about = "Remove a sandbox with its variables and files; \"default\" is made anew when it is used again.",
          .arguments = { { .name = "sandbox", .is_required = true, .max = 64 } } },
};
const size_t n_tools = ELEMENTS(tools);

/* ---- the list ---- */

static void put_argument(const struct tool_argument *argument, struct json_writer *text) {
        static const char *const types[] = { "\"string\"", "\"integer\"", "\"number\"", "\"boolean\"",
                                             "\"array\",\"items\":{\"type\":\"string\"}" };
        char bounds[96] = "";
        json_writer_put_string(text, argument->name, strlen(argument->name));
        json_writer_put_literal(text, ":{\"type\":");
        json_writer_put(text, types[argument->kind], strlen(types[argument->kind]));
        if (argument->kind == TOOL_INTEGER || argument->kind == TOOL_NUMBER)
                (void) snprintf(bounds, sizeof(bounds), ",\"minimum\":%.10g,\"maximum\":%.10g", argument->min,
                                argument->max);
        json_writer_put(text, bounds, strlen(bounds));
        if (argument->about) {
                json_writer_put_literal(text, ",\"description\":");
                json_writer_put_string(text, argument->about, strlen(argument->about));
        }
        json_writer_put_literal(text, "}");
}

static void put_schema(const struct mcp_tool *tool, struct json_writer *text) {
        size_t n = 0;
        json_writer_put_literal(text, ",\"inputSchema\":{\"type\":\"object\",\"properties\":{");
        for (const struct tool_argument *argument = tool->arguments; argument->name; argument++) {
                json_writer_put(text, ",", n++ > 0);
                put_argument(argument, text);
        }
        json_writer_put_literal(text, "},\"required\":[");
        n = 0;
        for (const struct tool_argument *argument = tool->arguments; argument->name; argument++)
                if (argument->is_required) {
                        json_writer_put(text, ",", n++ > 0);
                        json_writer_put_string(text, argument->name, strlen(argument->name));
                }
        json_writer_put_literal(text, "],\"additionalProperties\":false}");
}

static void put_hint(struct json_writer *text, const char *name, bool value) {
        json_writer_put_literal(text, ",");
        json_writer_put_string(text, name, strlen(name));
        json_writer_put_literal(text, ":");
        json_writer_put_bool(text, value);
}

static void put_tool(const struct mcp_call *call, const struct mcp_tool *tool, struct json_writer *text) {
        char about[1200];
        int size = snprintf(about, sizeof(about), "%s%s%s", tool->about, tool->describes_place ? " " : "",
                            tool->describes_place ? call->peer->place : "");
        json_writer_put_literal(text, "{\"name\":");
        json_writer_put_string(text, tool->name, strlen(tool->name));
        json_writer_put_literal(text, ",\"title\":");
        json_writer_put_string(text, tool->title, strlen(tool->title));
        json_writer_put_literal(text, ",\"description\":");
        json_writer_put_string(text, about, (size_t) size < sizeof(about) ? (size_t) size : sizeof(about) - 1);
        put_schema(tool, text);
        bool reads = tool->hints & TOOL_READS;
        json_writer_put_literal(text, ",\"annotations\":{\"readOnlyHint\":");
        json_writer_put_bool(text, reads);
        put_hint(text, "destructiveHint", !reads && !(tool->hints & TOOL_HARMLESS));
        put_hint(text, "idempotentHint", reads || tool->hints & TOOL_IDEMPOTENT);
        put_hint(text, "openWorldHint", tool->hints & TOOL_OPEN_WORLD);
        json_writer_put_literal(text, "}}");
}

void tool_list(struct mcp_call *call, const struct mcp_message *message) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        if (!server_check_cursor(call, message))
                return;
        json_writer_put_literal(&members, "\"tools\":[");
        for (size_t i = 0; i < n_tools; i++) {
                json_writer_put(&members, ",", i > 0);
                put_tool(call, &tools[i], &members);
        }
        if (call->peer->has_fixtures)
                fixture_put_tools(&members);
        json_writer_put_literal(&members, "]");
        server_put_caching(call, &members, 60000, false);
        mcp_call_result(call, &members, NULL);
}

/* ---- arguments ---- */

static int check_one(const struct mcp_tool *tool, const struct tool_argument *argument, const json_t *value,
                     struct err *err) {
        static const char *const kinds[] = { "a text", "a whole number", "a number", "true or false",
                                             "a list of texts" };
        double number = json_number_value(value);
        bool is_good;
        switch (argument->kind) {
        case TOOL_TEXT:
                is_good = json_is_string(value);
                break;
        case TOOL_INTEGER:
                is_good = json_is_integer(value);
                break;
        case TOOL_NUMBER:
                is_good = json_is_number(value);
                break;
        case TOOL_TRUTH:
                is_good = json_is_boolean(value);
                break;
        case TOOL_TEXTS:
        default:
                is_good = json_is_array(value);
                break; /* what is in it the operation looks at */
        }
        if (!is_good)
                return err_set(err, ERR_USAGE, "%s: \"%s\" must be %s", tool->name, argument->name,
                               kinds[argument->kind]);
        if (argument->kind == TOOL_TEXT && argument->max > 0 && (double) json_string_length(value) > argument->max)
                return err_set(err, ERR_USAGE, "%s: \"%s\" is longer than %.0f bytes", tool->name, argument->name,
                               argument->max);
        if (argument->kind == TOOL_TEXT && strlen(json_string_value(value)) != json_string_length(value))
                return err_set(err, ERR_USAGE, "%s: \"%s\" holds a NUL character; remove it", tool->name,
                               argument->name);
        if (json_is_number(value) && (number < argument->min || number > argument->max))
                return err_set(err, ERR_USAGE, "%s: \"%s\" must lie between %.10g and %.10g", tool->name,
                               argument->name, argument->min, argument->max);
        return 0;
}

/* Checks the arguments of a tool; NULL: there are none. The message of ERR_USAGE names the wrong one. */
static int tool_check(const struct mcp_tool *tool, json_t *arguments, struct err *err) {
        const char *key;
        json_t *value;
        for (const struct tool_argument *argument = tool->arguments; argument->name; argument++) {
                value = json_object_get(arguments, argument->name);
                if (!value && argument->is_required)
                        return err_set(err, ERR_USAGE, "%s: \"%s\" is missing", tool->name, argument->name);
                if (value && check_one(tool, argument, value, err) < 0)
                        return -1;
        }
        json_object_foreach (arguments, key, value) {
                const struct tool_argument *argument = tool->arguments;
                char names[200] = "";
                size_t used = 0;
                for (; argument->name && strcmp(argument->name, key) != 0; argument++)
                        used += (size_t) snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
                                                  argument->name);
                if (!argument->name)
                        return err_set(err, ERR_USAGE, "%s has no argument \"%.60s\"; it takes: %s", tool->name, key,
                                       *names ? names : "none");
        }
        return 0;
}

static const struct mcp_tool *find_tool(const char *name) {
        for (size_t i = 0; i < n_tools; i++)
                if (strcmp(tools[i].name, name) == 0)
                        return &tools[i];
        return NULL;
}

void tool_call(struct mcp_call *call, const struct mcp_message *message) {
        const char *name = json_string_value(json_object_get(message->params, "name"));
        json_t *arguments = json_object_get(message->params, "arguments");
        struct mcp_error error = { 0 };
        struct err err;
        const struct mcp_tool *tool = name ? find_tool(name) : NULL;
        if (json_is_null(arguments))
                arguments = NULL;
        if (name && !tool && call->peer->has_fixtures && fixture_call_tool(call, message, name))
                return;
        if (!tool)
                (void) mcp_error_set(&error, MCP_INVALID_PARAMS, 200,
                                     "there is no tool \"%.60s\"; tools/list names those there are", name ? name : "");
        else if (arguments && !json_is_object(arguments))
                (void) mcp_error_set(&error, MCP_INVALID_PARAMS, 200, "\"arguments\" must be an object");
        if (error.code) {
                mcp_call_fail(call, &error);
                return;
        }
        (void) snprintf(call->tool, sizeof(call->tool), "%s", tool->name);
        if (tool_check(tool, arguments, &err) < 0)
                mcp_call_refuse(call, &err);
        else
                tool->run(call, arguments);
}

/* ---- names ---- */

int tool_name_sandbox(struct mcp_call *call, const char *handle, char ret_name[static TOOL_NAME_ROOM],
                      struct err *err) {
        handle = handle ? handle : "default";
        if (strlen(handle) >= sizeof(call->sandbox) || registry_check_name(handle, NULL) < 0)
                return err_set(err, ERR_USAGE, "\"%.60s\" is no handle of a sandbox; list_sandboxes shows them",
                               handle);
        (void) snprintf(call->sandbox, sizeof(call->sandbox), "%s", handle);
        (void) snprintf(ret_name, TOOL_NAME_ROOM, "%s%s", call->peer->prefix, handle);
        return 0;
}

int tool_name_run(struct mcp_call *call, const char *text, char ret_name[static TOOL_NAME_ROOM], struct err *err) {
        char handle[sizeof(call->sandbox)];
        const char *dot = strrchr(text, '.');
        size_t size = dot ? (size_t) (dot - text) : 0;
        if (!dot || size == 0 || size >= sizeof(handle) || strlen(dot + 1) != 32 ||
            strspn(dot + 1, "0123456789abcdef") != 32)
                return err_set(err, ERR_USAGE,
                               "\"%.60s\" is no run_id: it looks like default.0123…, as run_python gave it", text);
        memcpy(handle, text, size);
        handle[size] = '\0';
        (void) snprintf(call->run_id, sizeof(call->run_id), "%s", dot + 1);
        return tool_name_sandbox(call, handle, ret_name, err);
}
