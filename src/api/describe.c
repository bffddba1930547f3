/* openapi.json out of the table of routes. */
#include <ctype.h>
#include <string.h>

#include "api/route.h"

static void clean_json(json_t **json) {
        json_decref(*json);
}
#define _cleanup_json_ __attribute__((cleanup(clean_json)))

static int parse_schema(const char *text, const char *whose, json_t **ret_schema, struct err *err) {
        json_error_t where;
        *ret_schema = text ? json_loads(text, JSON_REJECT_DUPLICATES, &where) : json_object();
        if (!*ret_schema)
                return err_set(err, ERR_SYSTEM, "the schema of %s is not JSON: %s", whose,
                               text ? where.text : "out of memory");
        return 0;
}

static json_t *describe_parameter(const char *name, const char *in, const char *type, const char *summary,
                                  bool is_required) {
        return json_pack("{s:s, s:s, s:b, s:s, s:{s:s}}", "name", name, "in", in, "required", is_required,
                         "description", summary, "schema", "type", type);
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
                (void) json_array_append_new(list, describe_parameter(name, "path", "string", "", true));
        }
        for (const struct api_query *query = route->query; query && query->name; query++)
                (void) json_array_append_new(list, describe_parameter(query->name, "query", query->type, query->summary,
                                                                      query->is_required));
        return list;
}

/* Takes the schema. */
static json_t *describe_content(const char *type, json_t *schema) {
        return json_pack("{s:{s:o}}", type, "schema", schema);
}

static int describe_operation(const struct api_route *route, json_t **ret_operation, struct err *err) {
        _cleanup_json_ json_t *body = NULL, *answer = NULL;
        if (parse_schema(route->body_schema, route->name, &body, err) < 0 ||
            parse_schema(route->answer_schema, route->name, &answer, err) < 0)
                return -1;
        const char *answer_type = route->answer_type ? route->answer_type : "application/json";
        json_t *operation =
                json_pack("{s:s, s:s, s:o, s:{s:{s:s, s:o}, s:{s:s}}}", "operationId", route->name, "summary",
                          route->summary, "parameters", describe_parameters(route), "responses", "200", "description",
                          "done", "content", describe_content(answer_type, json_incref(answer)), "default", "$ref",
                          "#/components/responses/Problem");
        if (!operation)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (route->body_type)
                (void) json_object_set_new(
                        operation, "requestBody",
                        json_pack("{s:o}", "content", describe_content(route->body_type, json_incref(body))));
        if (route->is_open)
                (void) json_object_set_new(operation, "security", json_array());
        *ret_operation = operation;
        return 0;
}

static json_t *describe_components(void) {
        return json_pack("{s:{s:{s:s, s:s}}, s:{s:{s:s, s:{s:{s:{s:s}}}}},"
                         " s:{s:{s:s, s:{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}}}}",
                         "securitySchemes", "key", "type", "http", "scheme", "bearer", "responses", "Problem",
                         "description", "it did not work: cause and remedy", "content", "application/problem+json",
                         "schema", "$ref", "#/components/schemas/Problem", "schemas", "Problem", "type", "object",
                         "properties", "status", "type", "integer", "title", "type", "string", "code", "type", "string",
                         "detail", "type", "string", "remedy", "type", "string");
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
        _cleanup_json_ json_t *description =
                json_pack("{s:s, s:{s:s, s:s}, s:[{s:[]}], s:{}, s:o}", "openapi", "3.1.0", "info", "title", title,
                          "version", version, "security", "key", "paths", "components", describe_components());
        if (!description)
                return err_set(err, ERR_SYSTEM, "out of memory");
        if (describe_paths(routes, json_object_get(description, "paths"), err) < 0)
                return -1;
        *ret_description = json_incref(description);
        return 0;
}
