/* Runs: code and commands in a sandbox, their events, their results. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "base/memory.h"
#include "http/query.h"
#include "session/session.h"
#include "session/session_config.h"

/* ---- a new run ---- */

/* "timeout" in seconds, as people say it; "timeout_ms" is there for programs. */
static int take_timeout(const struct api_request *api_request, json_t *body, json_t *operation, struct err *err) {
        json_t *seconds = json_object_get(body, "timeout"), *ms = json_object_get(body, "timeout_ms");
        double value = seconds ? json_number_value(seconds) * 1000 : json_number_value(ms);
        if ((!seconds || json_is_null(seconds)) && (!ms || json_is_null(ms)))
                return 0;
        if (!(json_is_number(seconds) || json_is_number(ms)) || !(value >= 1 && value <= 7.0 * 86400 * 1000))
                return err_set(err, ERR_USAGE, "timeout is a number of seconds, at least 0.001 and at most a week");
        json_object_set_new(operation, "timeout_ms", json_integer((json_int_t) value));
        return session_config_check_ceiling(&api_request->caller, &(const struct limits) { .timeout_ms = (uint64_t) value }, err);
}

/* What is misspelled must not be ignored: a "timeuot" would be none. */
static int check_members(json_t *body, const char *const *own, struct err *err) {
        static const char *const how[] = { "timeout", "timeout_ms", "stream", "detach", "cancel_on_disconnect", NULL };
        const char *key;
        json_t *value;
        json_object_foreach(body, key, value) {
                size_t i = 0, n = 0;
                while (how[i] && strcmp(how[i], key) != 0)
                        i++;
                while (own[n] && strcmp(own[n], key) != 0)
                        n++;
                if (!how[i] && !own[n])
                        return err_set(err, ERR_USAGE, "there is no \"%.60s\" here; /docs lists what there is", key);
        }
        return 0;
}

/* Takes the operation, which lacks only what the body says: these members as they are, the others decide how. */
static void begin(struct api_request *api_request, json_t *operation, json_t *body, const char *const *own) {
        struct err err;
        for (size_t i = 0; own[i]; i++)
                if (json_object_get(body, own[i]))
                        json_object_set(operation, own[i], json_object_get(body, own[i]));
        api_request_choose_form(api_request, json_is_true(json_object_get(body, "stream")));
        api_request->is_detached = json_is_true(json_object_get(body, "detach"));
        json_object_set_new(operation, "session", json_string(api_request_user(api_request)));
        json_object_set_new(operation, "stream", json_boolean(api_request->form != API_REQUEST_WHOLE));
        if (json_is_true(json_object_get(body, "cancel_on_disconnect")))
                json_object_set_new(operation, "cancel_on_disconnect", json_true());
        if (check_members(body, own, &err) < 0 || take_timeout(api_request, body, operation, &err) < 0 ||
            !sandbox_has_room(api_request, api_request_user(api_request), &err) || api_request_count_run(api_request, &err) < 0) {
                json_decref(operation);
                api_request_refuse(api_request, &err);
                return;
        }
        api_request_ask(api_request, operation);
}

static void execute(struct api_request *api_request, json_t *body) {
        static const char *const own[] = { "code", "context", "env", "store_history", "create", NULL };
        begin(api_request, json_pack("{s:s}", "op", "execute"), body, own);
}

void execution_execute(struct api_request *api_request) {
        api_request_read_json(api_request, execute);
}

static void shell(struct api_request *api_request, json_t *body) {
        static const char *const own[] = { "command", "argv", "env", "cwd", "stdin", "create", NULL };
        json_t *operation = json_pack("{s:s}", "op", "command");
        if (json_object_get(body, "command"))
                json_object_set(operation, "shell", json_object_get(body, "command"));
        begin(api_request, operation, body, own);
}

void execution_shell(struct api_request *api_request) {
        api_request_read_json(api_request, shell);
}

/* Packages are installed by a run in a box of its own; it cannot be read again, so there is no leaving it to itself. */
static void install(struct api_request *api_request, json_t *body) {
        static const char *const own[] = { "packages", "package", NULL };
        json_t *operation = json_pack("{s:s}", "op", "session.install"), *one = json_object_get(body, "package");
        struct err err;
        if (json_is_true(json_object_get(body, "detach"))) {
                json_decref(operation);
                (void) err_set(&err, ERR_USAGE, "an install cannot be detached; stream it, or wait for its answer");
                api_request_refuse(api_request, &err);
                return;
        }
        if (one && !json_object_get(body, "packages"))
                json_object_set_new(body, "packages", json_pack("[O]", one));
        begin(api_request, operation, body, own);
}

void execution_install(struct api_request *api_request) {
        api_request_read_json(api_request, install);
}

/* ---- runs that were ---- */

static json_t *ask_run(struct api_request *api_request, const char *operation) {
        return json_pack("{s:s, s:s, s:s}", "op", operation, "session", api_request_user(api_request), "run",
                         api_match_get(&api_request->match, "run_id"));
}

/* A whole number in the query or a header; 0 when there is none, -1 when it is none. */
static int64_t number_of(const char *text) {
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
        int64_t value = number_of(http_query_find(&query, name));
        http_query_free(&query);
        return value >= 0 ? value : err_set(err, ERR_USAGE, "%s is a whole number", name);
}

void execution_events(struct api_request *api_request) {
        struct err err;
        int64_t from = query_number(api_request, "from", &err);
        const char *last = http_header(api_request->request, "Last-Event-ID");
        if (from == 0 && last && number_of(last) >= 0)
                from = number_of(last) + 1;
        if (from < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        api_request_choose_form(api_request, true);
        api_request->number = from > 0 ? (uint64_t) from - 1 : 0;
        json_t *operation = ask_run(api_request, "run.read");
        json_object_set_new(operation, "from", json_integer(from));
        api_request_ask(api_request, operation);
}

void execution_show(struct api_request *api_request) {
        api_request_ask(api_request, ask_run(api_request, "run.show"));
}

void execution_cancel(struct api_request *api_request) {
        api_request_ask(api_request, ask_run(api_request, "run.cancel"));
}

void execution_list(struct api_request *api_request) {
        struct err err;
        int64_t limit = query_number(api_request, "limit", &err);
        if (limit < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        api_request_ask(api_request, json_pack("{s:s, s:s, s:I}", "op", "session.log", "session", api_request_user(api_request),
                                         "limit", (json_int_t) limit));
}
