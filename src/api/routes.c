#include "api/routes.h"

#include "base/memory.h"

#define TEXT "{\"type\":\"string\"}"
#define NUMBER "{\"type\":\"number\"}"
#define INTEGER "{\"type\":\"integer\"}"
#define TRUTH "{\"type\":\"boolean\"}"
#define OBJECT(members) "{\"type\":\"object\",\"properties\":{" members "}}"
#define ARRAY(items) "{\"type\":\"array\",\"items\":" items "}"

#define LIMITS                                                                                                         \
        OBJECT("\"memory_bytes\":" INTEGER ",\"cpus\":" NUMBER ",\"pids\":" INTEGER ",\"timeout_ms\":" INTEGER         \
               ",\"tmp_bytes\":" INTEGER ",\"disk_bytes\":" INTEGER)
#define SANDBOX_OPTIONS                                                                                                \
        "\"image\":" TEXT ",\"engine\":{\"enum\":[\"native\"]},\"mode\":{\"enum\":[\"fast\",\"fresh\"]},"              \
        "\"limits\":" LIMITS ",\"env\":{\"type\":\"object\",\"additionalProperties\":" TEXT "},"                       \
        "\"network\":{},\"min_isolation\":{\"enum\":[\"full\",\"weaker\"]},"                                           \
        "\"mounts\":" ARRAY(OBJECT("\"source\":" TEXT ",\"destination\":" TEXT ",\"writable\":" TRUTH))
#define SANDBOX                                                                                                        \
        OBJECT("\"id\":" TEXT ",\"user_id\":" TEXT ",\"state\":{\"enum\":[\"new\",\"idle\",\"running\",\"trimmed\","   \
               "\"asleep\",\"lost\"]},\"image\":" TEXT ",\"mode\":" TEXT ",\"limits\":" LIMITS                         \
               ",\"memory_bytes\":" INTEGER ",\"created\":" INTEGER ",\"used\":" INTEGER)
#define HOW "\"timeout\":" NUMBER ",\"stream\":" TRUTH ",\"detach\":" TRUTH ",\"cancel_on_disconnect\":" TRUTH
#define RESULT                                                                                                         \
        OBJECT("\"run_id\":" TEXT ",\"status\":{\"enum\":[\"ok\",\"error\",\"timeout\",\"oom\",\"killed\","            \
               "\"interrupted\"]},\"stdout\":" TEXT ",\"stderr\":" TEXT ",\"stdout_cut_bytes\":" INTEGER               \
               ",\"stderr_cut_bytes\":" INTEGER ",\"exit_code\":" INTEGER ",\"timed_out\":" TRUTH                      \
               ",\"oom_killed\":" TRUTH ",\"duration_ms\":" INTEGER ",\"result\":{},\"displays\":" ARRAY("{}")          \
               ",\"error\":{},\"artifacts\":" ARRAY("{}") ",\"usage\":{},\"variables_lost\":" TRUTH)

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

#define ROW(m, p, r, n, s) .method = m, .pattern = p, .run = r, .name = n, .summary = s

static const struct api_route rows[] = {
        { ROW("POST", "/sandbox/{user_id}/create", sandbox_create, "createSandbox",
          "Make the user's sandbox, or return the one there is"), .body_type = "application/json",
          .body_schema = OBJECT(SANDBOX_OPTIONS), .answer_schema = SANDBOX },
        { ROW("POST", "/sandbox/{user_id}/execute", execution_execute, "execute",
          "Run Python; variables stay. With \"stream\": true, or asked for by Accept, as a stream of events"),
          .body_type = "application/json", .body_schema = OBJECT("\"code\":" TEXT ",\"context\":" TEXT "," HOW),
          .answer_schema = RESULT },
        { ROW("POST", "/sandbox/{user_id}/shell", execution_shell, "shell", "Run a shell command"),
          .body_type = "application/json",
          .body_schema = OBJECT("\"command\":" TEXT ",\"argv\":" ARRAY(TEXT) ",\"env\":{},\"cwd\":" TEXT "," HOW),
          .answer_schema = RESULT },
        { ROW("DELETE", "/sandbox/{user_id}/destroy", sandbox_destroy, "destroySandbox", "Remove the sandbox"),
          .query = destroy_query },
        { ROW("GET", "/health", health_show, "health", "Is the service alive?"), .is_open = true },

        { ROW("GET", "/sandboxes", sandbox_list, "listSandboxes", "Every sandbox of this key") },
        { ROW("GET", "/sandbox/{user_id}", sandbox_show, "showSandbox", "The sandbox, and its last runs"),
          .answer_schema = SANDBOX },
        { ROW("POST", "/sandbox/{user_id}/interrupt", sandbox_interrupt, "interrupt", "Interrupt the run that is on") },
        { ROW("POST", "/sandbox/{user_id}/restart", sandbox_restart, "restart",
          "A new interpreter: variables are lost, files stay") },
        { ROW("POST", "/sandbox/{user_id}/hibernate", sandbox_hibernate, "hibernate",
          "Put the sandbox to sleep; its next run wakes it"), .body_type = "application/json",
          .body_schema = OBJECT("\"depth\":{\"enum\":[\"sleep\",\"trim\"]}") },
        { ROW("GET", "/sandbox/{user_id}/isolation", sandbox_isolation, "isolation",
          "What separates the sandbox from its host") },
        { ROW("GET", "/sandbox/{user_id}/runs", execution_list, "listRuns", "The runs that are kept, newest first"),
          .query = list_query },
        { ROW("GET", "/sandbox/{user_id}/runs/{run_id}", execution_show, "showRun", "A run's result, once it is over"),
          .answer_schema = RESULT },
        { ROW("GET", "/sandbox/{user_id}/runs/{run_id}/events", execution_events, "runEvents",
          "A run's events again, from any number on"), .query = events_query, .answer_type = "text/event-stream" },
        { ROW("POST", "/sandbox/{user_id}/runs/{run_id}/cancel", execution_cancel, "cancelRun", "Interrupt this run") },

        { ROW("GET", "/openapi.json", health_describe, "describe", "This table, as OpenAPI"), .is_open = true },
};

const struct api_routes api_routes = { rows, ELEMENTS(rows) };
