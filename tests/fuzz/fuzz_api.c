/* Untrusted input of the API behind a valid head: a method and a path, a query, and a JSON body that asks for a
 * sandbox. Found or refused with a sentence, never believed. The input is three lines: "METHOD path", the query, the
 * body (which may have lines of its own). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/route.h"
#include "base/json_bounds.h"
#include "base/memory.h"
#include "daemon/daemon.h"
#include "http/query.h"
#include "session/caller.h"
#include "session/serve_options.h"
#include "session/session_config.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const struct api_route rows[] = {
        { .method = "GET", .pattern = "/health", .name = "health", .summary = "" },
        { .method = "POST", .pattern = "/sandbox/{user_id}/create", .name = "create", .summary = "" },
        { .method = "GET", .pattern = "/sandbox/{user_id}/runs/{run_id}/events", .name = "events", .summary = "" },
};
static const struct api_routes routes = { .rows = rows, .n = ELEMENTS(rows) };

static void find(const char *line) {
        char method[32] = "", allow[API_ALLOW_SIZE];
        size_t n = strcspn(line, " ");
        struct api_match match;
        struct err err = { 0 };
        if (n >= sizeof(method) || line[n] == '\0')
                return;
        memcpy(method, line, n);
        if (api_route_find(&routes, method, line + n + 1, &match, allow, &err) < 0) {
                if (err.code == ERR_NONE || !*err.message)
                        abort();
                return;
        }
        const char *user = api_match_get(&match, "user_id");
        if (user && (!*user || strlen(user) > API_PARAMETER_SIZE_MAX))
                abort();
}

static void read_query(const char *line) {
        struct http_pairs pairs;
        struct err err;
        if (http_query_parse(line, &pairs, &err) < 0)
                return;
        (void) http_query_find(&pairs, "path");
        http_query_free(&pairs);
}

static void read_body(const char *body, size_t size) {
        static const struct serve_options options = { .image = "host", .limits = LIMITS_DEFAULT };
        static const char *const none[] = { NULL };
        static const struct maker_settings settings = { .data_dir = "/nonexistent",
                                                        .socket_path = "/nonexistent/s",
                                                        .read_paths = none,
                                                        .write_paths = none,
                                                        .key_write_paths = none };
        static struct daemon daemon;
        static struct registry_session row;
        const struct caller caller = { .manager = &daemon.manager, .owner = "stranger" };
        struct err err = { 0 };
        daemon.manager.options = &options;
        daemon.manager.maker_settings = &settings;
        json_t *json = json_is_bounded(body, size) ? json_loadb(body, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
        if (json_is_object(json) && session_config_from_json(&caller, json, SESSION_CONFIG_LOOK_NOW, &row, &err) == 0) {
                /* What is the operator's stays the operator's, and every limit is within its bounds. */
                if (*row.workspace || row.allow_weaker || strcmp(row.owner, "stranger") != 0 ||
                    row.limits.memory_bytes < 8 * MIB || row.limits.pids > 32768 || row.limits.timeout_ms == 0)
                        abort();
                json_t *kept = *row.options ? json_loads(row.options, 0, NULL) : json_object();
                if (!kept || json_object_get(kept, "operator"))
                        abort();
                json_decref(kept);
        }
        json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        char *text = text_of(bytes, size);
        char *query = memchr(text, '\n', size), *body = NULL;
        if (query) {
                *query++ = '\0';
                body = memchr(query, '\n', size - (size_t) (query - text));
        }
        if (body)
                *body++ = '\0';
        find(text);
        if (query)
                read_query(query);
        if (body)
                read_body(body, size - (size_t) (body - text));
        free(text);
        return 0;
}
