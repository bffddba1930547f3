/* Runs: code and commands in a sandbox, their events, their results. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "base/memory.h"
#include "daemon/operation.h"
#include "http/query.h"
#include "session/session.h"
#include "session/session_config.h"

/* ---- a new run ---- */

/* "timeout" in seconds, for people; "timeout_ms" for programs. */
static int take_timeout(const struct api_request *api_request, json_t *body, uint64_t *ret_timeout_ms,
                        struct err *err) {
        json_t *seconds = json_object_get(body, "timeout"), *ms = json_object_get(body, "timeout_ms");
        double value = seconds ? json_number_value(seconds) * 1000 : json_number_value(ms);
        *ret_timeout_ms = 0;
        if ((!seconds || json_is_null(seconds)) && (!ms || json_is_null(ms)))
                return 0;
        if (!(json_is_number(seconds) || json_is_number(ms)) || !(value >= 1 && value <= 7.0 * 86400 * 1000))
                return err_set(err, ERR_USAGE, "timeout must be a number of seconds, from 0.001 to a week");
        *ret_timeout_ms = (uint64_t) value;
        return session_config_check_ceiling(&api_request->caller,
                                            &(const struct limits) { .timeout_ms = (uint64_t) value }, err);
}

/* A misspelled member must not be ignored: with "timeuot" there would be no time limit. */
static int check_members(json_t *body, const char *const *own, struct err *err) {
        static const char *const how[] = { "timeout", "timeout_ms", "stream", "detach", "cancel_on_disconnect", NULL };
        const char *key;
        json_t *value;
        json_object_foreach (body, key, value) {
                size_t i = 0, n = 0;
                while (how[i] && strcmp(how[i], key) != 0)
                        i++;
                while (own[n] && strcmp(own[n], key) != 0)
                        n++;
                if (!how[i] && !own[n])
                        return err_set(err, ERR_USAGE, "there is no member \"%.60s\" here; /docs lists them", key);
        }
        return 0;
}

/* Checks of every run over HTTP before it is requested: known members, a time limit, quotas, and the form of its
 * answer. */
static int prepare_run(struct api_request *api_request, json_t *body, const char *const *own, uint64_t *ret_timeout_ms,
                       struct err *err) {
        const char *user_id = api_request_user(api_request);
        api_request_choose_form(api_request, json_is_true(json_object_get(body, "stream")));
        api_request->is_detached = json_is_true(json_object_get(body, "detach"));
        if (check_members(body, own, err) < 0 || take_timeout(api_request, body, ret_timeout_ms, err) < 0 ||
            (user_id && !sandbox_has_room(api_request, user_id, err)) || api_request_count_run(api_request, err) < 0)
                return -1;
        api_request_attend(api_request);
        return 0;
}

/* on_accepted answers a detached run; the api_request then waits for its end, so that quotas count active runs. */
static int read_run(struct api_request *api_request, json_t *body, const char *const *own,
                    struct run_request *ret_request, struct err *err) {
        uint64_t timeout_ms;
        if (run_request_read_json(body, ret_request, err) < 0 ||
            prepare_run(api_request, body, own, &timeout_ms, err) < 0)
                return -1;
        ret_request->session = api_request_user(api_request);
        ret_request->timeout_ms = timeout_ms;
        ret_request->stream = api_request->form != API_REQUEST_WHOLE;
        ret_request->detach = false;
        return 0;
}

static void run_code(struct api_request *api_request, json_t *body) {
        static const char *const own[] = { "code", "context", "env", "store_history", "create", NULL };
        struct run_request request;
        struct err err;
        int code = read_run(api_request, body, own, &request, &err);
        if (code == 0)
                code = operation_execute(&api_request->caller, &request, &err);
        api_request_settle(api_request, code, &err);
}

void execution_execute(struct api_request *api_request) {
        api_request_read_json(api_request, run_code);
}

static void run_command(struct api_request *api_request, json_t *body) {
        static const char *const own[] = { "command", "argv", "env", "cwd", "stdin", "user", "create", NULL };
        struct run_request request;
        struct err err;
        int code = read_run(api_request, body, own, &request, &err);
        if (code == 0) {
                request.shell = json_string_value(json_object_get(body, "command"));
                code = operation_command(&api_request->caller, &request, &err);
        }
        api_request_settle(api_request, code, &err);
}

void execution_shell(struct api_request *api_request) {
        api_request_read_json(api_request, run_command);
}

/* A run whose box is removed cannot be read later: it ends with its client. */
static int check_stays(json_t *body, struct err *err) {
        if (json_is_false(json_object_get(body, "cancel_on_disconnect")))
                return err_set(err, ERR_USAGE,
                               "this run ends when its connection breaks, since it could not be read later; a run of "
                               "a sandbox continues");
        return 0;
}

/* Code or a command in a box of its own. The body has the options of the box, too. */
static void run_one_shot(struct api_request *api_request, json_t *body) {
        static const char *const own[] = { "code",   "language",  "args",      "command",       "argv",  "cwd",
                                           "user",   "stdin",     "files",     "env",           "image", "mode",
                                           "limits", "mounts",    "data",      "network",       "users", "allow_weaker",
                                           "engine", "workspace", "isolation", "min_isolation", NULL };
        struct run_request request;
        struct err err;
        int code = run_request_read_json(body, &request, &err) < 0 || check_stays(body, &err) < 0 ||
                                   sandbox_check_isolation(api_request, body, &err) < 0
                           ? -1
                           : read_run(api_request, body, own, &request, &err);
        if (code == 0) {
                request.options = body;
                request.detach = api_request->is_detached; /* refused */
                request.shell = json_string_value(json_object_get(body, "command"));
                request.stdin_text = request.stdin_path;
                request.stdin_path = NULL;
                request.wants_contents = true;
                code = operation_one_shot(&api_request->caller, &request, &err);
        }
        api_request_settle(api_request, code, &err);
}

void execution_one_shot(struct api_request *api_request) {
        api_request_read_json(api_request, run_one_shot);
}

/* Packages are installed by a run in a box of its own. It cannot be read later, so it cannot be detached. */
static void install_packages(struct api_request *api_request, json_t *body) {
        static const char *const own[] = { "packages", "package", NULL };
        json_t *one = json_object_get(body, "package"), *packages = json_object_get(body, "packages");
        struct err err;
        if (json_is_true(json_object_get(body, "detach"))) {
                (void) err_set(&err, ERR_USAGE, "an install cannot be detached; stream it, or wait for its answer");
                api_request_refuse(api_request, &err);
                return;
        }
        packages = packages || !one ? json_incref(packages) : json_pack("[O]", one);
        struct install_request request = { .session = api_request_user(api_request),
                                           .packages = packages,
                                           .cancel_on_disconnect =
                                                   json_is_true(json_object_get(body, "cancel_on_disconnect")) };
        int code = prepare_run(api_request, body, own, &request.timeout_ms, &err);
        if (code == 0) {
                request.stream = api_request->form != API_REQUEST_WHOLE;
                code = operation_install(&api_request->caller, &request, &err);
        }
        api_request_settle(api_request, code, &err);
        json_decref(packages);
}

void execution_install(struct api_request *api_request) {
        api_request_read_json(api_request, install_packages);
}

/* ---- runs that were ---- */

static struct run_reference reference_of(const struct api_request *api_request) {
        return (struct run_reference) { .session = api_request_user(api_request),
                                        .run_id = api_match_get(&api_request->match, "run_id") };
}

/* A whole number in the query or a header; 0: not given; -1: not a number. */
static int64_t execution_parse_number(const char *text) {
        char *end;
        if (!text)
                return 0;
        errno = 0;
        long long value = strtoll(text, &end, 10);
        return errno || *end || end == text || value < 0 || value == LLONG_MAX || *text == '+' ? -1 : value;
}

static int64_t query_number(struct api_request *api_request, const char *name, struct err *err) {
        struct http_pairs query;
        if (http_query_parse(http_query(api_request->request), &query, err) < 0)
                return -1;
        int64_t value = execution_parse_number(http_query_find(&query, name));
        http_query_free(&query);
        return value >= 0 ? value : err_set(err, ERR_USAGE, "%s must be a whole number", name);
}

void execution_events(struct api_request *api_request) {
        struct err err;
        int64_t from = query_number(api_request, "from", &err);
        const char *last = http_header(api_request->request, "Last-Event-ID");
        if (from == 0 && last && execution_parse_number(last) >= 0)
                from = execution_parse_number(last) + 1;
        if (from < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        api_request_choose_form(api_request, true);
        api_request->number = from > 0 ? (uint64_t) from - 1 : 0;
        struct run_reference reference = reference_of(api_request);
        reference.from = (uint64_t) from;
        api_request_attend(api_request);
        api_request_settle(api_request, operation_run_read(&api_request->caller, &reference, &err), &err);
}

void execution_show(struct api_request *api_request) {
        const struct run_reference reference = reference_of(api_request);
        struct err err;
        api_request_attend(api_request);
        api_request_settle(api_request, operation_run_show(&api_request->caller, &reference, &err), &err);
}

void execution_cancel(struct api_request *api_request) {
        const struct run_reference reference = reference_of(api_request);
        struct err err;
        api_request_attend(api_request);
        api_request_settle(api_request, operation_run_cancel(&api_request->caller, &reference, &err), &err);
}

void execution_list(struct api_request *api_request) {
        struct err err;
        int64_t limit = query_number(api_request, "limit", &err);
        if (limit < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        api_request_attend(api_request);
        api_request_settle(
                api_request,
                operation_session_log(&api_request->caller, api_request_user(api_request), (size_t) limit, &err), &err);
}
