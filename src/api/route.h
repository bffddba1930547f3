/* The table of routes: one row for each method and path. Requests are dispatched by it, and openapi.json is written
 * from it, so the two agree. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { API_PARAMETERS_MAX = 4, API_PARAMETER_SIZE_MAX = 256, API_ALLOW_SIZE = 64 };

/* A parameter of the query; the last row has no name. */
struct api_query {
        const char *name, *type; /* "string", "integer", "boolean" */
        const char *summary;
        bool is_required;
};

struct api_request;

struct api_route {
        const char *method;  /* GET answers HEAD too */
        const char *pattern; /* "/sandbox/{user_id}/file": a name in braces stands for one segment */
        void (*run)(struct api_request *api_request);
        const char *name; /* the operation's, unique in the table */
        const char *summary;
        const struct api_query *query; /* NULL: nothing is documented */
        const char *body_type;         /* one, or several with blanks between; NULL: no body is taken */
        const char *body_schema;       /* JSON Schema as text; NULL: anything */
        const char *answer_type;       /* NULL: application/json */
        const char *answer_schema;     /* NULL: anything */
        bool is_open;                  /* no key is needed */
        bool is_stream;                /* the answer may be a stream of events, too */
        const char *group;             /* heading in the documents */
        const char *body_example;      /* JSON as text */
        const char *statuses;          /* "200 201 404": beside those that every row of its kind has; NULL: 200 */
};

/* A shape that rows refer to with {"$ref":"#/components/schemas/NAME"}; the last one has no name. */
struct api_schema {
        const char *name, *text;
};

struct api_routes {
        const struct api_route *rows;
        size_t n;
        const struct api_schema *schemas; /* NULL: none */
};

/* A matched request: its row, and the values of the names in braces, percent-decoded. */
struct api_match {
        const struct api_route *route;
        size_t n_parameters;
        struct {
                char name[32];
                char value[API_PARAMETER_SIZE_MAX + 1];
        } parameters[API_PARAMETERS_MAX];
};

/* ERR_NOT_FOUND: no such path. ERR_UNSUPPORTED: not with that method; ret_allow has the value of an Allow header.
 * ERR_USAGE: a segment is empty, too long or not UTF-8. ret_allow is empty otherwise. */
int api_route_find(const struct api_routes *routes, const char *method, const char *path, struct api_match *ret_match,
                   char ret_allow[static API_ALLOW_SIZE], struct err *err);

/* NULL: the route has no such name. */
const char *api_match_get(const struct api_match *match, const char *name);

/* The OpenAPI 3.1 description; the caller frees it with json_decref. Fails when a schema in the table is not JSON. */
int api_route_describe(const struct api_routes *routes, const char *title, const char *version,
                       json_t **ret_description, struct err *err);
