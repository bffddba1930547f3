#include "api/route.h"

#include <stdio.h>
#include <string.h>

#include "http/text.h"

/* ---- finding ---- */

static int take_parameter(struct api_match *match, const char *name, size_t name_size, const char *value, size_t size,
                          struct err *err) {
        if (match->n_parameters == API_PARAMETERS_MAX || name_size >= sizeof(match->parameters[0].name))
                return err_set(err, ERR_SYSTEM, "a route has too many parameters, or one with a long name");
        char *to = match->parameters[match->n_parameters].value;
        size_t n;
        if (size > API_PARAMETER_SIZE_MAX)
                return err_set(err, ERR_USAGE, "%.*s is longer than %d bytes", (int) name_size, name,
                               API_PARAMETER_SIZE_MAX);
        if (http_decode(value, size, false, to, &n) < 0 || n == 0)
                return err_set(err, ERR_USAGE, "%.*s is empty or not percent-encoded UTF-8", (int) name_size, name);
        memcpy(match->parameters[match->n_parameters].name, name, name_size);
        match->parameters[match->n_parameters++].name[name_size] = '\0';
        return 0;
}

/* True if the path matches the pattern. */
static bool has_shape(const char *pattern, const char *path) {
        while (*pattern && *path) {
                if (*pattern == '{') {
                        pattern = strchr(pattern, '}') + 1;
                        path += strcspn(path, "/");
                } else if (*pattern++ != *path++)
                        return false;
        }
        /* "/a/" has the shape of "/a/{b}": the name is empty then, which take_parameter refuses. */
        return *path == '\0' && (*pattern == '\0' || (*pattern == '{' && strchr(pattern, '}')[1] == '\0'));
}

static int take_parameters(const struct api_route *route, const char *path, struct api_match *match, struct err *err) {
        for (const char *pattern = route->pattern; *pattern;) {
                if (*pattern != '{') {
                        pattern++;
                        path++;
                        continue;
                }
                const char *end = strchr(pattern, '}');
                size_t size = strcspn(path, "/");
                if (take_parameter(match, pattern + 1, (size_t) (end - pattern) - 1, path, size, err) < 0)
                        return -1;
                pattern = end + 1;
                path += size;
        }
        return 0;
}

static void add_allowed(char allow[static API_ALLOW_SIZE], const char *method) {
        size_t used = strlen(allow);
        (void) snprintf(allow + used, API_ALLOW_SIZE - used, "%s%s", used ? ", " : "", method);
}

/* A longer path that takes this method: DELETE /sandbox/{user_id}/destroy for DELETE /sandbox/{user_id}. */
static const char *find_longer(const struct api_routes *routes, const char *method, const char *pattern) {
        size_t size = strlen(pattern);
        for (size_t i = 0; i < routes->n; i++) {
                const char *longer = routes->rows[i].pattern;
                if (strcmp(routes->rows[i].method, method) == 0 && strncmp(longer, pattern, size) == 0 &&
                    longer[size] == '/')
                        return longer;
        }
        return NULL;
}

static int refuse_method(const struct api_routes *routes, const char *method, const char *pattern, const char *allow,
                         struct err *err) {
        const char *longer = find_longer(routes, method, pattern);
        return err_set(err, ERR_UNSUPPORTED, "%s is not possible here; this path takes %s%s%s%s%s%s", method, allow,
                       longer ? " (there is " : "", longer ? method : "", longer ? " " : "", longer ? longer : "",
                       longer ? ")" : "");
}

int api_route_find(const struct api_routes *routes, const char *method, const char *path, struct api_match *ret_match,
                   char ret_allow[static API_ALLOW_SIZE], struct err *err) {
        const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
        const char *shape = "";
        ret_allow[0] = '\0';
        for (size_t i = 0; i < routes->n; i++) {
                const struct api_route *route = &routes->rows[i];
                if (!has_shape(route->pattern, path))
                        continue;
                if (strcmp(route->method, wanted) != 0) {
                        add_allowed(ret_allow, route->method);
                        shape = route->pattern;
                        continue;
                }
                ret_allow[0] = '\0';
                ret_match->route = route;
                ret_match->n_parameters = 0;
                return take_parameters(route, path, ret_match, err);
        }
        if (ret_allow[0])
                return refuse_method(routes, method, shape, ret_allow, err);
        return err_set(err, ERR_NOT_FOUND, "there is no %.200s; GET /openapi.json lists what there is", path);
}

const char *api_match_get(const struct api_match *match, const char *name) {
        for (size_t i = 0; i < match->n_parameters; i++)
                if (strcmp(match->parameters[i].name, name) == 0)
                        return match->parameters[i].value;
        return NULL;
}
