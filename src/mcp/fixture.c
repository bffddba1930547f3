#include "mcp/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop.h"
#include "base/memory.h"
#include "daemon/daemon.h"
#include "mcp/ask.h"
#include "mcp/content.h"
#include "mcp/server.h"
#include "mcp/task.h"
#include "mcp/tool.h"

enum { STEPS = 3, STEP_MS = 50 };

#define PIXEL "\"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==\""
#define SOUND "\"UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==\""
#define TEXT(words) "{\"type\":\"text\",\"text\":\"" words "\"}"
#define IMAGE "{\"type\":\"image\",\"data\":" PIXEL ",\"mimeType\":\"image/png\"}"
#define EMBEDDED(uri, mime, words)                                                                                     \
        "{\"type\":\"resource\",\"resource\":{\"uri\":\"" uri "\",\"mimeType\":\"" mime "\",\"text\":\"" words "\"}}"

static void report_progress(struct mcp_call *call);
static void report_log(struct mcp_call *call);
static void need_sampling(struct mcp_call *call);
static void fixture_greet(struct mcp_call *call);
static void fail_as_task(struct mcp_call *call);
static void sleep_as_task(struct mcp_call *call);

static const struct {
        const char *name, *content; /* what it answers; */
        bool is_error;
        void (*step)(struct mcp_call *call); /* before that, some times; or NULL */
        void (*run)(struct mcp_call *call);  /* instead; or NULL */
        const char *schema;                  /* or NULL: no arguments */
} tools_of_tests[] = {
        { "test_simple_text", TEXT("This is a simple text response for testing."), false, NULL, NULL, NULL },
        { "test_image_content", IMAGE, false, NULL, NULL, NULL },
        { "test_audio_content", "{\"type\":\"audio\",\"data\":" SOUND ",\"mimeType\":\"audio/wav\"}", false, NULL, NULL,
          NULL },
        { "test_embedded_resource",
          EMBEDDED("test://embedded-resource", "text/plain", "This is an embedded resource content."), false, NULL,
          NULL, NULL },
        { "test_multiple_content_types",
          TEXT("Multiple content types test:") "," IMAGE "," EMBEDDED(
                  "test://mixed-content-resource", "application/json", "{\\\"test\\\":\\\"data\\\",\\\"value\\\":123}"),
          false, NULL, NULL, NULL },
        { "test_error_handling", TEXT("This tool intentionally returns an error for testing"), true, NULL, NULL, NULL },
        { "test_tool_with_progress", TEXT("progress was reported"), false, report_progress, NULL, NULL },
        { "test_tool_with_logging", TEXT("three messages were logged"), false, report_log, NULL, NULL },
        { "test_logging_tool", TEXT("logged, if that was wanted"), false, report_log, NULL, NULL },
        { "test_streaming_elicitation", TEXT("nothing is asked here"), false, NULL, NULL, NULL },
        { "test_missing_capability", NULL, false, NULL, need_sampling, NULL },
        { "greet", NULL, false, NULL, fixture_greet, "{\"type\":\"object\"}" },
        { "failing_job", NULL, false, NULL, fail_as_task, "{\"type\":\"object\"}" },
        { "slow_compute", NULL, false, NULL, sleep_as_task, "{\"type\":\"object\"}" },
        { "json_schema_2020_12_tool", TEXT("ok"), false, NULL, NULL,
          "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\",\"$defs\":{\"address\":{"
          "\"$anchor\":\"addressDef\",\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"city\":{"
          "\"type\":\"string\"}}}},\"properties\":{\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":"
          "\"#/$defs/address\"},\"contactMethod\":{\"enum\":[\"phone\",\"email\"]},\"phone\":{\"type\":\"string\"},"
          "\"email\":{\"type\":\"string\"}},\"allOf\":[{\"anyOf\":[{\"required\":[\"phone\"]},{\"required\":[\""
          "email\"]}]}],\"if\":{\"properties\":{\"contactMethod\":{\"const\":\"phone\"}},\"required\":[\""
          "contactMethod\"]},\"then\":{\"required\":[\"phone\"]},\"else\":{\"required\":[\"email\"]},"
          "\"additionalProperties\":false}" },
};

static const struct {
        const char *uri, *members;
} resources_of_tests[] = {
        { "test://static-text",
          "\"mimeType\":\"text/plain\",\"text\":\"This is the content of the static text resource.\"" },
        { "test://static-binary", "\"mimeType\":\"image/png\",\"blob\":" PIXEL },
        { "test://watched-resource", "\"mimeType\":\"text/plain\",\"text\":\"Watched resource content.\"" },
};

#define USER(content) "{\"role\":\"user\",\"content\":" content "}"
static const struct {
        const char *name, *arguments, *messages; /* %s stands for the arguments' values, as JSON without quotes */
        const char *takes[2];
} prompts_of_tests[] = {
        { "test_simple_prompt", "", USER(TEXT("This is a simple prompt for testing.")), { NULL, NULL } },
        { "test_prompt_with_arguments",
          "{\"name\":\"arg1\",\"required\":true},{\"name\":\"arg2\",\"required\":true}",
          USER(TEXT("Prompt with arguments: arg1='%s', arg2='%s'")),
          { "arg1", "arg2" } },
        { "test_prompt_with_embedded_resource",
          "{\"name\":\"resourceUri\",\"required\":true}",
          USER(EMBEDDED("%s", "text/plain", "Embedded resource content for testing.")) "," USER(
                  TEXT("Please process the embedded resource above.")),
          { "resourceUri", NULL } },
        { "test_prompt_with_image", "", USER(IMAGE) "," USER(TEXT("Please analyze the image above.")), { NULL, NULL } },
};

/* ---- lists ---- */

void fixture_put_capabilities(const struct mcp_call *call, struct json_writer *members) {
        json_writer_put_literal(members, ",\"prompts\":{},\"completions\":{}");
        if (call->era == MCP_LEGACY)
                json_writer_put_literal(members, ",\"logging\":{}");
}

void fixture_put_tools(struct json_writer *members) {
        for (size_t i = 0; i < ELEMENTS(tools_of_tests); i++) {
                const char *schema = tools_of_tests[i].schema ? tools_of_tests[i].schema
                                                              : "{\"type\":\"object\",\"additionalProperties\":false}";
                json_writer_put_literal(members, ",{\"description\":\"for the conformance tests\",\"name\":");
                json_writer_put_string(members, tools_of_tests[i].name, strlen(tools_of_tests[i].name));
                json_writer_put_literal(members, ",\"inputSchema\":");
                json_writer_put(members, schema, strlen(schema));
                json_writer_put_literal(members, "}");
        }
}

void fixture_put_resources(struct json_writer *members) {
        for (size_t i = 0; i < ELEMENTS(resources_of_tests); i++) {
                json_writer_put(members, ",", i > 0);
                json_writer_put_literal(members, "{\"name\":\"fixture\",\"uri\":");
                json_writer_put_string(members, resources_of_tests[i].uri, strlen(resources_of_tests[i].uri));
                json_writer_put_literal(members, "}");
        }
}

void fixture_put_templates(struct json_writer *members) {
        json_writer_put_literal(members, ",{\"uriTemplate\":\"test://template/{id}/data\",\"name\":\"fixture\"}");
}

static void list_prompts(struct mcp_call *call) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        json_writer_put_literal(&members, "\"prompts\":[");
        for (size_t i = 0; i < ELEMENTS(prompts_of_tests); i++) {
                json_writer_put(&members, ",", i > 0);
                json_writer_put_literal(&members, "{\"description\":\"for the conformance tests\",\"name\":");
                json_writer_put_string(&members, prompts_of_tests[i].name, strlen(prompts_of_tests[i].name));
                json_writer_put_literal(&members, ",\"arguments\":[");
                json_writer_put(&members, prompts_of_tests[i].arguments, strlen(prompts_of_tests[i].arguments));
                json_writer_put_literal(&members, "]}");
        }
        json_writer_put_literal(&members, "]");
        server_put_caching(call, &members, 60000, true);
        mcp_call_result(call, &members, NULL);
}

/* ---- prompts ---- */

static void put_argument(struct json_writer *members, const json_t *arguments, const char *name) {
        _cleanup_json_writer_ struct json_writer quoted = { 0 };
        json_t *value = json_object_get(arguments, name);
        json_writer_put_string(&quoted, json_is_string(value) ? json_string_value(value) : "",
                               json_string_length(value));
        if (quoted.size > 2)
                json_writer_put(members, quoted.bytes + 1, quoted.size - 2);
}

static bool get_prompt(struct mcp_call *call, const struct mcp_message *message) {
        const char *name = json_string_value(json_object_get(message->params, "name"));
        for (size_t i = 0; name && i < ELEMENTS(prompts_of_tests); i++) {
                _cleanup_json_writer_ struct json_writer members = { 0 };
                const char *at = prompts_of_tests[i].messages, *mark;
                if (strcmp(prompts_of_tests[i].name, name) != 0)
                        continue;
                json_writer_put_literal(&members, "\"messages\":[");
                for (size_t n = 0; n < 2 && (mark = strstr(at, "%s")); n++) {
                        json_writer_put(&members, at, (size_t) (mark - at));
                        put_argument(&members, json_object_get(message->params, "arguments"),
                                     prompts_of_tests[i].takes[n]);
                        at = mark + 2;
                }
                json_writer_put(&members, at, strlen(at));
                json_writer_put_literal(&members, "]");
                mcp_call_result(call, &members, NULL);
                return true;
        }
        return false;
}

bool fixture_handle(struct mcp_call *call, const struct mcp_message *message) {
        static const char *const nothings[] = { "logging/setLevel", "resources/subscribe", "resources/unsubscribe" };
        _cleanup_json_writer_ struct json_writer members = { 0 };
        if (strcmp(message->method, "prompts/list") == 0) {
                list_prompts(call);
                return true;
        }
        if (strcmp(message->method, "prompts/get") == 0)
                return get_prompt(call, message);
        if (strcmp(message->method, "completion/complete") == 0) {
                json_writer_put_literal(&members, "\"completion\":{\"values\":[],\"total\":0,\"hasMore\":false}");
                mcp_call_result(call, &members, NULL);
                return true;
        }
        for (size_t i = 0; call->era == MCP_LEGACY && i < ELEMENTS(nothings); i++)
                if (strcmp(nothings[i], message->method) == 0) {
                        mcp_call_result(call, &members, NULL);
                        return true;
                }
        return false;
}

/* ---- tools ---- */

static void answer_tool(struct mcp_call *call, size_t which) {
        _cleanup_json_writer_ struct json_writer members = { 0 };
        json_writer_put_literal(&members, "\"content\":[");
        json_writer_put(&members, tools_of_tests[which].content, strlen(tools_of_tests[which].content));
        json_writer_put_literal(&members, "]");
        if (tools_of_tests[which].is_error)
                json_writer_put_literal(&members, ",\"isError\":true");
        mcp_call_result(call, &members, NULL);
}

static void report_progress(struct mcp_call *call) {
        char params[100];
        _cleanup_free_ char *token = call->progress_token ? json_dumps(call->progress_token, JSON_ENCODE_ANY) : NULL;
        if (!token || strlen(token) > 40)
                return;
        int size = snprintf(params, sizeof(params), "{\"progressToken\":%s,\"progress\":%d,\"total\":100}", token,
                            50 * (int) call->progress);
        mcp_call_notify(call, "notifications/progress", params, (size_t) size);
}

static void report_log(struct mcp_call *call) {
        static const char params[] = "{\"level\":\"info\",\"data\":\"a step of the tool\"}";
        if (call->era == MCP_LEGACY || call->wants_log)
                mcp_call_notify(call, "notifications/message", params, sizeof(params) - 1);
}

static void on_step(void *context) {
        struct mcp_call *call = context;
        size_t which = (size_t) (uintptr_t) call->context;
        call->timer = NULL;
        if (call->progress == STEPS) {
                answer_tool(call, which);
                return;
        }
        tools_of_tests[which].step(call);
        call->progress++;
        call->timer = loop_timer(call->peer->manager->loop, loop_now_ms() + STEP_MS, on_step, call);
}

static void need_sampling(struct mcp_call *call) {
        struct mcp_error error;
        (void) mcp_error_set(&error, MCP_MISSING_CAPABILITY, 400, "this tool needs the capability sampling");
        error.data = json_pack("{s:{s:{}}}", "requiredCapabilities", "sampling");
        mcp_call_fail(call, &error);
}

static void fixture_greet(struct mcp_call *call) {
        const struct mcp_message *message = call->context;
        const char *name = json_string_value(json_object_get(json_object_get(message->params, "arguments"), "name"));
        char words[200];
        int size = snprintf(words, sizeof(words), "Hello, %.100s!", name ? name : "there");
        mcp_call_say(call, words, (size_t) size, false);
}

/* Real runs in the default sandbox, as tasks from the start where the client takes them. */
static void run_as_task(struct mcp_call *call, const char *code) {
        char name[TOOL_NAME_ROOM];
        struct err err;
        json_t *text = json_string(code);
        if (tool_name_sandbox(call, NULL, name, &err) < 0)
                mcp_call_refuse(call, &err);
        else {
                call->is_run = true;
                call->output.keeps_end = true;
                call->began_ms = loop_wall_ms();
                if (call->takes_tasks)
                        mcp_call_wait(call, 0);
                ask_python(call, name, text, 0, content_answer_run);
        }
        json_decref(text);
}

static void sleep_as_task(struct mcp_call *call) {
        const struct mcp_message *message = call->context;
        double seconds = json_number_value(json_object_get(json_object_get(message->params, "arguments"), "seconds"));
        char code[100];
        (void) snprintf(code, sizeof(code), "import time; time.sleep(%.3f); print('slept')",
                        seconds < 60 ? seconds : 60);
        call->context = NULL;
        run_as_task(call, code);
}

static void fail_as_task(struct mcp_call *call) {
        struct mcp_error error;
        if (call->takes_tasks) {
                run_as_task(call, "raise RuntimeError('this job fails')");
                return;
        }
        (void) mcp_error_set(&error, MCP_MISSING_CAPABILITY, 400, "this tool needs a client that takes tasks");
        error.data = json_pack("{s:{s:{s:{}}}}", "requiredCapabilities", "extensions", MCP_TASKS_EXTENSION);
        mcp_call_fail(call, &error);
}

bool fixture_call_tool(struct mcp_call *call, const struct mcp_message *message, const char *name) {
        for (size_t i = 0; i < ELEMENTS(tools_of_tests); i++) {
                if (strcmp(tools_of_tests[i].name, name) != 0)
                        continue;
                call->context = tools_of_tests[i].run ? (const void *) message : (const void *) (uintptr_t) i;
                if (tools_of_tests[i].run)
                        tools_of_tests[i].run(call);
                else if (tools_of_tests[i].step)
                        on_step(call);
                else
                        answer_tool(call, i);
                return true;
        }
        return false;
}

bool fixture_read_resource(struct mcp_call *call, const char *uri) {
        static const char before[] = "test://template/", after[] = "/data";
        _cleanup_json_writer_ struct json_writer members = { 0 };
        size_t size = strlen(uri), found = 0;
        bool is_template = size > strlen(before) + strlen(after) && size < 200 &&
                           strncmp(uri, before, strlen(before)) == 0 && strcmp(uri + size - strlen(after), after) == 0;
        while (found < ELEMENTS(resources_of_tests) && strcmp(resources_of_tests[found].uri, uri) != 0)
                found++;
        if (!is_template && found == ELEMENTS(resources_of_tests))
                return false;
        json_writer_put_literal(&members, "\"contents\":[{\"uri\":");
        json_writer_put_string(&members, uri, size);
        json_writer_put_literal(&members, ",");
        if (is_template) {
                char words[400];
                int id_size = (int) (size - strlen(before) - strlen(after));
                const char *id = uri + strlen(before);
                int n = snprintf(words, sizeof(words),
                                 "{\"id\":\"%.*s\",\"templateTest\":true,\"data\":\"Data for ID: %.*s\"}", id_size, id,
                                 id_size, id);
                json_writer_put_literal(&members, "\"mimeType\":\"application/json\",\"text\":");
                json_writer_put_string(&members, words, (size_t) n);
        } else
                json_writer_put(&members, resources_of_tests[found].members, strlen(resources_of_tests[found].members));
        json_writer_put_literal(&members, "}]");
        server_put_caching(call, &members, 0, true);
        mcp_call_result(call, &members, NULL);
        return true;
}

bool fixture_is_enabled(void) {
        const char *value = getenv("GLOVEBOX_TEST_MCP_FIXTURES");
        return value && strcmp(value, "1") == 0;
}
