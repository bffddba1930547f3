/* Runs: code and commands in a sandbox, their events, their results. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api/exchange.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "base/memory.h"
#include "http/query.h"
#include "session/row.h"
#include "session/session.h"

/* ---- a new run ---- */

/* "timeout" in seconds, as people say it; "timeout_ms" is there for programs. */
static int take_timeout(const struct exchange *exchange, json_t *body, json_t *operation, struct err *err) {
        json_t *seconds = json_object_get(body, "timeout"), *ms = json_object_get(body, "timeout_ms");
        double value = seconds ? json_number_value(seconds) * 1000 : json_number_value(ms);
        if ((!seconds || json_is_null(seconds)) && (!ms || json_is_null(ms)))
                return 0;
        if (!(json_is_number(seconds) || json_is_number(ms)) || !(value >= 1 && value <= 7.0 * 86400 * 1000))
                return err_set(err, ERR_USAGE, "timeout is a number of seconds, at least 0.001 and at most a week");
        json_object_set_new(operation, "timeout_ms", json_integer((json_int_t) value));
        return row_check_ceiling(&exchange->asker, &(const struct limits) { .timeout_ms = (uint64_t) value }, err);
}

static int count_run(struct exchange *exchange, struct err *err) {
        struct quota_use *use = exchange->visitor.use;
        if (use && share_take(&exchange->service->daemon->shares, SHARE_RUNS,
                              &(const struct share_claim) { .key = use->owner, .amount = 1,
                                                            .key_max = use->quota.runs }, err) < 0)
                return -1;
        exchange->is_run = true;
        exchange->service->counted.runs++;
        return 0;
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
static void begin(struct exchange *exchange, json_t *operation, json_t *body, const char *const *own) {
        struct err err;
        for (size_t i = 0; own[i]; i++)
                if (json_object_get(body, own[i]))
                        json_object_set(operation, own[i], json_object_get(body, own[i]));
        exchange_choose_form(exchange, json_is_true(json_object_get(body, "stream")));
        exchange->is_detached = json_is_true(json_object_get(body, "detach"));
        json_object_set_new(operation, "session", json_string(exchange_user(exchange)));
        json_object_set_new(operation, "stream", json_boolean(exchange->form != EXCHANGE_WHOLE));
        if (json_is_true(json_object_get(body, "cancel_on_disconnect")))
                json_object_set_new(operation, "cancel_on_disconnect", json_true());
        if (check_members(body, own, &err) < 0 || take_timeout(exchange, body, operation, &err) < 0 ||
            !sandbox_has_room(exchange, exchange_user(exchange), &err) || count_run(exchange, &err) < 0) {
                json_decref(operation);
                exchange_refuse(exchange, &err);
                return;
        }
        exchange_ask(exchange, operation);
}

static void execute(struct exchange *exchange, json_t *body) {
        static const char *const own[] = { "code", "context", "env", "store_history", "create", NULL };
        begin(exchange, json_pack("{s:s}", "op", "execute"), body, own);
}

void execution_execute(struct exchange *exchange) {
        exchange_read_json(exchange, execute);
}

static void shell(struct exchange *exchange, json_t *body) {
        static const char *const own[] = { "command", "argv", "env", "cwd", "stdin", "create", NULL };
        json_t *operation = json_pack("{s:s}", "op", "command");
        if (json_object_get(body, "command"))
                json_object_set(operation, "shell", json_object_get(body, "command"));
        begin(exchange, operation, body, own);
}

void execution_shell(struct exchange *exchange) {
        exchange_read_json(exchange, shell);
}

/* Packages are installed by a run in a box of its own; it cannot be read again, so there is no leaving it to itself. */
static void install(struct exchange *exchange, json_t *body) {
        static const char *const own[] = { "packages", "package", NULL };
        json_t *operation = json_pack("{s:s}", "op", "session.install"), *one = json_object_get(body, "package");
        struct err err;
        if (json_is_true(json_object_get(body, "detach"))) {
                json_decref(operation);
                (void) err_set(&err, ERR_USAGE, "an install cannot be detached; stream it, or wait for its answer");
                exchange_refuse(exchange, &err);
                return;
        }
        if (one && !json_object_get(body, "packages"))
                json_object_set_new(body, "packages", json_pack("[O]", one));
        begin(exchange, operation, body, own);
}

void execution_install(struct exchange *exchange) {
        exchange_read_json(exchange, install);
}

/* ---- runs that were ---- */

static json_t *ask_run(struct exchange *exchange, const char *operation) {
        return json_pack("{s:s, s:s, s:s}", "op", operation, "session", exchange_user(exchange), "run",
                         api_match_get(&exchange->match, "run_id"));
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

static int64_t query_number(struct exchange *exchange, const char *name, struct err *err) {
        struct http_pairs query;
        if (http_query_parse(http_query(exchange->request), &query, err) < 0)
                return -1;
        int64_t value = number_of(http_query_find(&query, name));
        http_query_free(&query);
        return value >= 0 ? value : err_set(err, ERR_USAGE, "%s is a whole number", name);
}

void execution_events(struct exchange *exchange) {
        struct err err;
        int64_t from = query_number(exchange, "from", &err);
        const char *last = http_header(exchange->request, "Last-Event-ID");
        if (from == 0 && last && number_of(last) >= 0)
                from = number_of(last) + 1;
        if (from < 0) {
                exchange_refuse(exchange, &err);
                return;
        }
        exchange_choose_form(exchange, true);
        exchange->number = from > 0 ? (uint64_t) from - 1 : 0;
        json_t *operation = ask_run(exchange, "run.read");
        json_object_set_new(operation, "from", json_integer(from));
        exchange_ask(exchange, operation);
}

void execution_show(struct exchange *exchange) {
        exchange_ask(exchange, ask_run(exchange, "run.show"));
}

void execution_cancel(struct exchange *exchange) {
        exchange_ask(exchange, ask_run(exchange, "run.cancel"));
}

void execution_list(struct exchange *exchange) {
        struct err err;
        int64_t limit = query_number(exchange, "limit", &err);
        if (limit < 0) {
                exchange_refuse(exchange, &err);
                return;
        }
        exchange_ask(exchange, json_pack("{s:s, s:s, s:I}", "op", "session.log", "session", exchange_user(exchange),
                                         "limit", (json_int_t) limit));
}
