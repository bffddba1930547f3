/* Tables: clang-format would break them in the middle of a row. */
/* clang-format off */
#include "api/routes.h"

#include "api/schema.h"
#include "base/memory.h"

#define SANDBOX_OPTIONS                                                                                                \
        "\"image\":" TEXT ","                                                                                          \
        "\"engine\":{\"enum\":[\"auto\",\"native\",\"docker\",\"podman\",\"incus\",\"incus-vm\",\"remote\"]},"         \
        "\"isolation\":{\"enum\":[\"container\",\"gvisor\",\"vm\"]},\"mode\":{\"enum\":[\"fast\",\"fresh\"]},"         \
        "\"limits\":" REF("Limits") ",\"env\":{\"type\":\"object\",\"additionalProperties\":" TEXT "},"                \
        "\"network\":{},\"users\":{\"type\":\"boolean\"},\"min_isolation\":{\"enum\":[\"full\",\"weaker\"]},"          \
        "\"mounts\":" ARRAY(OBJECT("\"source\":" TEXT ",\"destination\":" TEXT ",\"writable\":" TRUTH))
#define SANDBOX REF("Sandbox")
#define RESULT REF("Result")
#define HOW                                                                                                            \
        "\"timeout\":" SAID("number", "seconds") ",\"stream\":" SAID("boolean", "answer with events as they happen")   \
        ",\"detach\":" SAID("boolean", "answer 202 at once; read the events later")                                    \
        ",\"cancel_on_disconnect\":" SAID("boolean", "interrupt the run when this connection breaks")

#define CREATE "\"create\":" SAID("boolean", "false: do not make the sandbox where there is none")
#define CODE_HOW                                                                                                       \
        "\"env\":{\"type\":\"object\"},\"store_history\":" SAID("boolean", "false: the run is not counted") "," CREATE

static const struct api_query destroy_query[] = {
        { "keep_files", "boolean", "leave the files of the sandbox on the host", false },
        { 0 },
};

static const struct api_query events_query[] = {
        { "from", "integer", "the first event wanted; Last-Event-ID: N asks for N + 1", false },
        { 0 },
};

static const struct api_query list_query[] = {
        { "limit", "integer", "at most so many, newest first; 20 without it", false },
        { 0 },
};

static const struct api_query read_query[] = {
        { "path", "string", "a file, or a directory to be listed; the workspace itself without it", false },
        { "stat", "boolean", "only what is there: type, size, time of the last change", false },
        { 0 },
};

static const struct api_query write_query[] = {
        { "path", "string", "the file; for a form, the directory that its files go to", false },
        { "mkdir", "boolean", "make a directory, and its parents; without a body", false },
        { "move_to", "string", "move what is at path to here; without a body", false },
        { "create", "boolean", "false: do not make the sandbox where there is none", false },
        { 0 },
};

static const struct api_query remove_query[] = {
        { "path", "string", "what to remove", true },
        { "recursive", "boolean", "a directory with all that is in it", false },
        { 0 },
};

static const struct api_query artifact_query[] = {
        { "path", "string", "one of the list, below artifacts/", true },
        { 0 },
};

#define FILE_WRITTEN                                                                                                   \
        OBJECT("\"path\":" TEXT ",\"size\":" INTEGER ",\"files\":" ARRAY(OBJECT("\"path\":" TEXT ",\"size\":" INTEGER)))
#define ARTIFACTS OBJECT("\"artifacts\":" ARRAY(REF("Artifact")) ",\"cut\":" TRUTH)

#define ROW(m, p, r, n, s) .method = m, .pattern = p, .run = r, .name = n, .summary = s

static const struct api_route rows[] = {
        { ROW("POST", "/sandbox/{user_id}/create", sandbox_create, "createSandbox",
          "Make the user's sandbox, or return the one there is"), .group = "Sandboxes",
          .body_type = "application/json", .body_schema = OBJECT(SANDBOX_OPTIONS),
          .body_example = "{\"limits\":{\"memory_bytes\":1073741824,\"cpus\":2}}",
          .answer_schema = SANDBOX, .statuses = "200 201 403 501" },
        { ROW("GET", "/sandboxes", sandbox_list, "listSandboxes", "Every sandbox of this key"), .group = "Sandboxes",
          .answer_schema = OBJECT("\"sandboxes\":" ARRAY(SANDBOX)) },
        { ROW("GET", "/sandbox/{user_id}", sandbox_show, "showSandbox", "The sandbox, and its last runs"),
          .group = "Sandboxes", .answer_schema = SANDBOX, .statuses = "200 404" },
        { ROW("POST", "/sandbox/{user_id}/restart", sandbox_restart, "restart",
          "A new interpreter: variables are lost, files stay"), .group = "Sandboxes", .statuses = "200 404" },
        { ROW("POST", "/sandbox/{user_id}/hibernate", sandbox_hibernate, "hibernate",
          "Put the sandbox to sleep; its next run wakes it"), .group = "Sandboxes", .body_type = "application/json",
          .body_schema = OBJECT("\"depth\":{\"enum\":[\"sleep\",\"trim\"]}"), .body_example = "{\"depth\":\"sleep\"}",
          .answer_schema = OBJECT("\"state\":" TEXT), .statuses = "200 404 409" },
        { ROW("GET", "/sandbox/{user_id}/isolation", sandbox_isolation, "isolation",
          "What separates the sandbox from its host"), .group = "Sandboxes", .statuses = "200 404" },
        { ROW("DELETE", "/sandbox/{user_id}/destroy", sandbox_destroy, "destroySandbox", "Remove the sandbox"),
          .group = "Sandboxes", .query = destroy_query, .statuses = "200 404" },

        { ROW("POST", "/run", execution_one_shot, "run",
          "Run code or a command in a box of its own, which is gone afterwards; the answers are those of execute"),
          .group = "Runs", .body_type = "application/json",
          .body_schema = OBJECT("\"code\":" TEXT ",\"language\":{\"enum\":[\"python\",\"bash\",\"sh\"]},\"args\":"
                                ARRAY(TEXT) ",\"command\":" TEXT ",\"argv\":" ARRAY(TEXT) ",\"cwd\":" TEXT
                                ",\"stdin\":" SAID("string", "the text that it reads as standard input")
                                ",\"files\":" SAID("object", "files below /workspace: a text, or {base64}, by name")
                                ",\"user\":" SAID("string", "who runs a command, with users") ",\"timeout\":"
                                SAID("number", "seconds") ",\"stream\":" TRUTH "," SANDBOX_OPTIONS),
          .body_example = "{\"code\":\"print(input())\",\"stdin\":\"hello\"}", .answer_schema = RESULT,
          .is_stream = true, .statuses = "200 403 404 501" },
        { ROW("POST", "/sandbox/{user_id}/execute", execution_execute, "execute",
          "Run Python; variables stay. With \"stream\": true, or asked for by Accept, as a stream of events"),
          .group = "Runs", .body_type = "application/json",
          .body_schema = OBJECT("\"code\":" TEXT ",\"context\":" TEXT "," CODE_HOW "," HOW),
          .body_example = "{\"code\":\"print(6 * 7)\"}", .answer_schema = RESULT, .is_stream = true,
          .statuses = "200 202" },
        { ROW("POST", "/sandbox/{user_id}/shell", execution_shell, "shell",
          "Run a shell command, or a program with its arguments; the answers are those of execute"), .group = "Runs",
          .body_type = "application/json",
          .body_schema = OBJECT("\"command\":" TEXT ",\"argv\":" ARRAY(TEXT) ",\"env\":{\"type\":\"object\"},\"cwd\":"
                                TEXT ",\"stdin\":" SAID("string", "a file in the sandbox, read as standard input")
                                ",\"user\":" SAID("string", "who runs it, in a sandbox with users") "," CREATE "," HOW),
          .body_example = "{\"command\":\"ls -l\"}", .answer_schema = RESULT, .is_stream = true,
          .statuses = "200 202" },
        { ROW("POST", "/sandbox/{user_id}/pip/install", execution_install, "installPackages",
          "Install packages into this sandbox; a running Python sees them at once"), .group = "Runs",
          .body_type = "application/json",
          .body_schema = OBJECT("\"packages\":" ARRAY(TEXT) ",\"package\":" TEXT ",\"timeout\":" NUMBER
                                ",\"stream\":" TRUTH ",\"cancel_on_disconnect\":" TRUTH),
          .body_example = "{\"packages\":[\"humanize\",\"attrs>=23\"]}", .answer_schema = RESULT, .is_stream = true,
          .statuses = "200 409" },
        { ROW("POST", "/sandbox/{user_id}/interrupt", sandbox_interrupt, "interrupt", "Interrupt the current run"),
          .group = "Runs", .answer_schema = OBJECT("\"interrupted\":" TRUTH), .statuses = "200 404" },
        { ROW("GET", "/sandbox/{user_id}/runs", execution_list, "listRuns", "The runs that are kept, newest first"),
          .group = "Runs", .query = list_query, .answer_schema = OBJECT("\"runs\":" ARRAY(REF("Run"))),
          .statuses = "200 404" },
        { ROW("GET", "/sandbox/{user_id}/runs/{run_id}", execution_show, "showRun", "A run's result, once it is over"),
          .group = "Runs", .answer_schema = RESULT, .statuses = "200 404 410" },
        { ROW("GET", "/sandbox/{user_id}/runs/{run_id}/events", execution_events, "runEvents",
          "A run's events again, from any number on"), .group = "Runs", .query = events_query,
          .answer_type = "text/event-stream", .answer_schema = REF("Event"), .is_stream = true,
          .statuses = "200 404 410" },
        { ROW("POST", "/sandbox/{user_id}/runs/{run_id}/cancel", execution_cancel, "cancelRun", "Interrupt this run"),
          .group = "Runs", .answer_schema = OBJECT("\"interrupted\":" TRUTH), .statuses = "200 404" },

        { ROW("GET", "/sandbox/{user_id}/file", file_read, "readFile",
          "Read a file, or a range of it; a directory is listed as JSON"), .group = "Files", .query = read_query,
          .answer_type = "application/octet-stream", .statuses = "200 206 304 403 404 416" },
        { ROW("POST", "/sandbox/{user_id}/file", file_write, "writeFile",
          "Write a file, whole or not at all: the body, or the files of a multipart/form-data"), .group = "Files",
          .query = write_query, .body_type = "application/octet-stream multipart/form-data",
          .answer_schema = FILE_WRITTEN, .statuses = "200 201 403 404 409 507" },
        { ROW("PUT", "/sandbox/{user_id}/file", file_write, "putFile", "The same as POST"), .group = "Files",
          .query = write_query, .body_type = "application/octet-stream multipart/form-data",
          .answer_schema = FILE_WRITTEN, .statuses = "200 201 403 404 409 507" },
        { ROW("DELETE", "/sandbox/{user_id}/file", file_remove, "removeFile", "Remove a file or a directory"),
          .group = "Files", .query = remove_query, .answer_schema = OBJECT("\"path\":" TEXT),
          .statuses = "200 403 404 409" },
        { ROW("GET", "/sandbox/{user_id}/artifacts", artifacts_list, "listArtifacts",
          "What runs have left below artifacts/"), .group = "Files", .answer_schema = ARTIFACTS,
          .statuses = "200 404" },
        { ROW("GET", "/sandbox/{user_id}/artifacts/download", artifacts_download, "downloadArtifact",
          "One of them, or a range of it"), .group = "Files", .query = artifact_query,
          .answer_type = "application/octet-stream", .statuses = "200 206 304 404 416" },
        { ROW("GET", "/sandbox/{user_id}/artifacts/zip", artifacts_zip, "zipArtifacts", "All of them in one archive"),
          .group = "Files", .answer_type = "application/zip", .statuses = "200 404" },

        { ROW("POST", "/mcp", mcp_post, "mcp", "The Model Context Protocol: one JSON-RPC message (docs/MCP.md)"),
          .group = "Service", .body_type = "application/json", .body_schema = OBJECT("\"jsonrpc\":" TEXT),
          .body_example = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", .is_stream = true,
          .statuses = "200 202 404" },
        { ROW("GET", "/channel", channel_open, "channel",
          "The protocol of the daemon's socket, for another Glovebox: with \"Upgrade: glovebox\" (docs/PROTOCOL.md)"),
          .group = "Service", .answer_schema = TEXT, .statuses = "101 403 426 429" },
        { ROW("GET", "/health", health_show, "health", "Is the service alive?"), .group = "Service", .is_open = true },
        { ROW("GET", "/metrics", metrics_show, "metrics", "Numbers for instruments, as Prometheus reads them"),
          .group = "Service", .answer_type = "text/plain", .answer_schema = TEXT },
        { ROW("GET", "/openapi.json", health_describe, "describe", "This table, as OpenAPI"), .group = "Service",
          .is_open = true },
        { ROW("GET", "/docs", page_show, "docs", "This table, as a page"), .group = "Service",
          .answer_type = "text/html", .answer_schema = TEXT, .is_open = true },
        { ROW("GET", "/", page_lead, "home", "Leads to the page"), .group = "Service", .statuses = "302",
          .is_open = true },
};

const struct api_routes api_routes = { rows, ELEMENTS(rows), api_schemas };
