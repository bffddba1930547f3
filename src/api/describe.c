/* openapi.json out of the table of routes. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/route.h"
#include "base/memory.h"

static void clean_json(json_t **json) {
        json_decref(*json);
}
#define _cleanup_json_ __attribute__((cleanup(clean_json)))

static const char intro[] =
        "Runs untrusted code in sealed boxes: one sandbox for each user_id, with a Python whose variables "
        "stay. Send \"Authorization: Bearer KEY\" with every request but /health. Errors are "
        "application/problem+json: \"code\" is stable, \"detail\" says what happened, \"remedy\" what to do.";

static const char problem_schema[] =
        "{\"type\":\"object\",\"required\":[\"status\",\"code\",\"detail\"],\"properties\":{"
        "\"status\":{\"type\":\"integer\"},\"title\":{\"type\":\"string\"},"
        "\"code\":{\"type\":\"string\",\"description\":\"stable: for programs\"},"
        "\"detail\":{\"type\":\"string\",\"description\":\"what happened, and why\"},"
        "\"remedy\":{\"type\":\"string\",\"description\":\"what to do\"}},"
        "\"examples\":[{\"status\":404,\"title\":\"Not Found\",\"code\":\"not_found\","
        "\"detail\":\"there is no sandbox \\\"bob\\\"; make it with create, or run something in it\"}]}";

static const struct {
        int status;
        const char *meaning;
} meanings[] = {
        { 200, "done" },
        { 201, "made" },
        { 202, "accepted: it goes on without you" },
        { 204, "done; there is nothing to say" },
        { 206, "the part that was asked for" },
        { 302, "it is elsewhere" },
        { 304, "you have it already" },
        { 400, "malformed: `detail` says what" },
        { 401, "no key, or one that is not known" },
        { 403, "a policy forbids it" },
        { 404, "there is no such thing" },
        { 409, "it cannot be done while something else is going on, or is there already" },
        { 410, "it was there and is gone" },
        { 412, "it is not as you believed" },
        { 413, "too large" },
        { 415, "not a content type that is taken here" },
        { 416, "the file is shorter than that" },
        { 429, "a quota is used up, or requests come too fast; Retry-After says how long to wait" },
        { 501, "this host cannot do it" },
        { 502, "another server that is needed did not answer as it should" },
        { 507, "the disk is full" },
};

static int describe_parse(const char *text, const char *whose, json_t **ret_json, struct err *err) {
        json_error_t where;
        *ret_json = text ? json_loads(text, JSON_REJECT_DUPLICATES, &where) : json_object();
        if (!*ret_json)
                return err_set(err, ERR_SYSTEM, "the schema of %s is not JSON: %s", whose,
                               text ? where.text : "out of memory");
        return 0;
}

/* ---- what comes in ---- */

static json_t *describe_parameter(const char *name, const char *in, const char *type, const char *summary,
                                  bool is_required) {
        return json_pack("{s:s, s:s, s:b, s:s, s:{s:s}}", "name", name, "in", in, "required", is_required,
                         "description", summary, "schema", "type", type);
}

static const char *meaning_of_segment(const char *name) {
        return strcmp(name, "user_id") == 0  ? "whose sandbox: a name of your choice, for this key only"
               : strcmp(name, "run_id") == 0 ? "as the run's result or its first event gave it"
                                             : "";
}

static json_t *describe_parameters(const struct api_route *route) {
        json_t *list = json_array();
        for (const char *at = route->pattern; (at = strchr(at, '{')); at++) {
                char name[32];
                size_t size = strcspn(at, "}") - 1;
                if (size >= sizeof(name))
                        continue;
                memcpy(name, at + 1, size);
                name[size] = '\0';
                (void) json_array_append_new(
                        list, describe_parameter(name, "path", "string", meaning_of_segment(name), true));
        }
        for (const struct api_query *query = route->query; query && query->name; query++)
                (void) json_array_append_new(list, describe_parameter(query->name, "query", query->type, query->summary,
                                                                      query->is_required));
        return list;
}

static int describe_body(const struct api_route *route, json_t **ret_body, struct err *err) {
        _cleanup_json_ json_t *schema = NULL, *example = NULL;
        if (describe_parse(route->body_schema, route->name, &schema, err) < 0 ||
            (route->body_example && describe_parse(route->body_example, route->name, &example, err) < 0))
                return -1;
        _cleanup_json_ json_t *content = json_pack("{s:O}", "schema", schema), *types = json_object();
        if (example)
                (void) json_object_set(content, "example", example);
        for (const char *at = route->body_type; *at; at += strspn(at, " ")) {
                char type[64];
                size_t size = strcspn(at, " ");
                (void) snprintf(type, sizeof(type), "%.*s", (int) size, at);
                (void) json_object_set(types, type, content);
                at += size;
        }
        *ret_body = json_pack("{s:O}", "content", types);
        return *ret_body ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

/* ---- what comes out ---- */

static const char *meaning_of(int status) {
        for (size_t i = 0; i < ELEMENTS(meanings); i++)
                if (meanings[i].status == status)
                        return meanings[i].meaning;
        return "see `detail`";
}

static json_t *describe_problem(int status) {
        json_t *answer = json_pack("{s:s, s:{s:{s:{s:s}}}}", "description", meaning_of(status), "content",
                                   "application/problem+json", "schema", "$ref", "#/components/schemas/Problem");
        if (status == 429)
                (void) json_object_set_new(answer, "headers",
                                           json_pack("{s:{s:s, s:{s:s}}}", "Retry-After", "description", "seconds",
                                                     "schema", "type", "integer"));
        return answer;
}

static json_t *describe_success(const struct api_route *route, int status, json_t *schema) {
        static const char *const streams[] = { "text/event-stream", "application/x-ndjson" };
        const char *type = route->answer_type ? route->answer_type : "application/json";
        json_t *content = json_pack("{s:{s:O}}", type, "schema", schema);
        for (size_t i = 0; route->is_stream && status == 200 && i < ELEMENTS(streams); i++)
                (void) json_object_set_new(content, streams[i],
                                           json_pack("{s:{s:s}}", "schema", "$ref", "#/components/schemas/Event"));
        json_t *answer = json_pack("{s:s}", "description", meaning_of(status));
        if (status < 300 && status != 204)
                (void) json_object_set(answer, "content", content);
        json_decref(content);
        return answer;
}

static void add_status(const struct api_route *route, json_t *schema, json_t *answers, int status) {
        char text[16];
        (void) snprintf(text, sizeof(text), "%d", status);
        (void) json_object_set_new(answers, text,
                                   status < 400 ? describe_success(route, status, schema) : describe_problem(status));
}

static json_t *describe_answers(const struct api_route *route, json_t *schema) {
        json_t *answers = json_object();
        char *end;
        for (const char *at = route->statuses ? route->statuses : "200"; *at; at = end) {
                add_status(route, schema, answers, (int) strtol(at, &end, 10));
                if (end == at)
                        break;
        }
        if (route->body_type || route->query || strchr(route->pattern, '{'))
                add_status(route, schema, answers, 400);
        if (!route->is_open) {
                add_status(route, schema, answers, 401);
                add_status(route, schema, answers, 429);
        }
        if (route->body_type)
                add_status(route, schema, answers, 413);
        if (route->body_type && strcmp(route->body_type, "application/json") == 0)
                add_status(route, schema, answers, 415);
        (void) json_object_set_new(answers, "default", json_pack("{s:s}", "$ref", "#/components/responses/Problem"));
        return answers;
}

/* ---- all of it ---- */

static int describe_operation(const struct api_route *route, json_t **ret_operation, struct err *err) {
        _cleanup_json_ json_t *answer = NULL;
        json_t *body = NULL;
        if (describe_parse(route->answer_schema, route->name, &answer, err) < 0 ||
            (route->body_type && describe_body(route, &body, err) < 0))
                return -1;
        json_t *operation =
                json_pack("{s:s, s:s, s:o, s:o}", "operationId", route->name, "summary", route->summary, "parameters",
                          describe_parameters(route), "responses", describe_answers(route, answer));
        if (!operation) {
                json_decref(body);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        if (body)
                (void) json_object_set_new(operation, "requestBody", body);
        if (route->group)
                (void) json_object_set_new(operation, "tags", json_pack("[s]", route->group));
        if (route->is_open)
                (void) json_object_set_new(operation, "security", json_array());
        *ret_operation = operation;
        return 0;
}

static int describe_components(const struct api_routes *routes, json_t **ret_components, struct err *err) {
        _cleanup_json_ json_t *schemas = json_object();
        json_t *schema;
        if (describe_parse(problem_schema, "Problem", &schema, err) < 0)
                return -1;
        (void) json_object_set_new(schemas, "Problem", schema);
        for (const struct api_schema *row = routes->schemas; row && row->name; row++) {
                if (describe_parse(row->text, row->name, &schema, err) < 0)
                        return -1;
                (void) json_object_set_new(schemas, row->name, schema);
        }
        *ret_components =
                json_pack("{s:{s:{s:s, s:s}}, s:{s:o}, s:O}", "securitySchemes", "key", "type", "http", "scheme",
                          "bearer", "responses", "Problem", describe_problem(0), "schemas", schemas);
        return *ret_components ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

static int describe_paths(const struct api_routes *routes, json_t *paths, struct err *err) {
        for (size_t i = 0; i < routes->n; i++) {
                const struct api_route *route = &routes->rows[i];
                json_t *path = json_object_get(paths, route->pattern), *operation = NULL;
                if (!path) {
                        path = json_object();
                        (void) json_object_set_new(paths, route->pattern, path);
                }
                if (describe_operation(route, &operation, err) < 0)
                        return -1;
                char method[16] = "";
                for (size_t n = 0; route->method[n] && n + 1 < sizeof(method); n++)
                        method[n] = (char) tolower((unsigned char) route->method[n]);
                (void) json_object_set_new(path, method, operation);
        }
        return 0;
}

int api_route_describe(const struct api_routes *routes, const char *title, const char *version,
                       json_t **ret_description, struct err *err) {
        json_t *components = NULL;
        if (describe_components(routes, &components, err) < 0)
                return -1;
        _cleanup_json_ json_t *description = json_pack(
                "{s:s, s:{s:s, s:s, s:s}, s:[{s:[]}], s:{}, s:o}", "openapi", "3.1.0", "info", "title", title,
                "version", version, "description", intro, "security", "key", "paths", "components", components);
        if (!description)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (describe_paths(routes, json_object_get(description, "paths"), err) < 0)
                return -1;
        *ret_description = json_incref(description);
        return 0;
}
