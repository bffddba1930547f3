/* The shapes that several rows speak of. */
/* Tables: clang-format would break them in the middle of a row. */
/* clang-format off */
#include "api/routes.h"
#include "api/schema.h"

const struct api_schema api_schemas[] = {
        { "Limits", OBJECT("\"memory_bytes\":" INTEGER ",\"cpus\":" NUMBER ",\"pids\":" INTEGER
                           ",\"timeout_ms\":" INTEGER ",\"tmp_bytes\":" INTEGER ",\"disk_bytes\":" INTEGER) },
        { "Sandbox",
          OBJECT("\"id\":" TEXT ",\"user_id\":" TEXT ",\"state\":{\"enum\":[\"new\",\"idle\",\"running\",\"trimmed\","
                 "\"asleep\",\"lost\"]},\"image\":" TEXT ",\"mode\":" TEXT ",\"limits\":" REF("Limits")
                 ",\"memory_bytes\":" INTEGER ",\"created\":" SAID("integer", "milliseconds of Unix time")
                 ",\"used\":" SAID("integer", "the last time, likewise")) },
        { "Run", OBJECT("\"run_id\":" TEXT ",\"ended\":" TRUTH ",\"status\":" TEXT ",\"duration_ms\":" INTEGER
                        ",\"events\":" INTEGER ",\"stdout_bytes\":" INTEGER ",\"stderr_bytes\":" INTEGER
                        ",\"began\":" INTEGER ",\"end\":" INTEGER) },
        { "Artifact", OBJECT("\"path\":" TEXT ",\"size\":" INTEGER ",\"mime\":" TEXT ",\"url\":" TEXT
                             ",\"content\":{\"description\":\"of /run: base64; null where it is too large\"}") },
        { "Result",
          OBJECT("\"run_id\":" TEXT ",\"status\":{\"enum\":[\"ok\",\"error\",\"timeout\",\"oom\",\"disk\",\"killed\","
                 "\"interrupted\"]},\"stdout\":" TEXT ",\"stderr\":" TEXT
                 ",\"stdout_cut_bytes\":" SAID("integer", "what did not fit; a stream has all of it")
                 ",\"stderr_cut_bytes\":" INTEGER ",\"exit_code\":" INTEGER ",\"timed_out\":" TRUTH
                 ",\"oom_killed\":" TRUTH ",\"duration_ms\":" INTEGER
                 ",\"execution_count\":" SAID("integer", "how many runs of code this sandbox has had")
                 ",\"result\":{\"description\":\"the value of the last expression, by MIME type; or null\"}"
                 ",\"displays\":" ARRAY("{}") ",\"error\":{\"description\":\"name, value, traceback; or null\"}"
                 ",\"artifacts\":" ARRAY(REF("Artifact")) ",\"usage\":"
                 OBJECT("\"cpu_ms\":" INTEGER ",\"memory_peak_bytes\":" INTEGER) ",\"variables_lost\":" TRUTH
                 ",\"warning\":" SAID("string", "beside the run: its sandbox is past its disk limit")) },
        { "Event",
          "{\"type\":\"object\",\"description\":\"one line of application/x-ndjson, or the data of one server-sent "
          "event; the last one is `result` or `error`, and there is exactly one of them\",\"required\":[\"event\"],"
          "\"properties\":{\"event\":{\"enum\":[\"start\",\"stdout\",\"stderr\",\"display\",\"result\",\"error\"]},"
          "\"number\":" SAID("integer", "of output and result: …/events?from=N+1 goes on after it")
          ",\"run_id\":" TEXT ",\"text\":" TEXT ",\"data\":{},\"result\":" REF("Result")
          ",\"problem\":" REF("Problem") "}}" },
        { 0 },
};
