/* Sandboxes: what the session layer calls sessions, one for each user_id of a key. */
#include <string.h>

#include "api/api_request.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "http/query.h"
#include "session/session.h"

/* ---- how one is shown ---- */

/* Where it lies on the host, and as which process, is the operator's business. */
static void shape_one(const struct api_request *api_request, json_t *sandbox) {
        json_object_set(sandbox, "user_id", json_object_get(sandbox, "name"));
        json_object_del(sandbox, "name");
        if (caller_is_operator(&api_request->caller))
                return;
        json_object_del(sandbox, "workspace");
        json_object_del(sandbox, "pid");
}

static json_t *shape_sandbox(struct api_request *api_request, json_t *answer, int *status) {
        json_t *created = json_object_get(answer, "created");
        const struct session *session = session_find(api_request->service->manager, api_request->visitor.owner,
                                                     api_request_user(api_request));
        if (json_is_true(created))
                *status = 201;
        if (json_is_boolean(created) && session) /* session.create says with it whether, not when */
                json_object_set_new(answer, "created", json_integer((json_int_t) session->row.created_ms));
        shape_one(api_request, answer);
        return json_incref(answer);
}

static json_t *shape_list(struct api_request *api_request, json_t *answer, int *status) {
        (void) status;
        json_t *list = json_object_get(answer, "sessions"), *one;
        size_t i;
        json_array_foreach(list, i, one) shape_one(api_request, one);
        return json_pack("{s:O}", "sandboxes", list);
}

static json_t *shape_isolation(struct api_request *api_request, json_t *answer, int *status) {
        (void) api_request;
        (void) status;
        json_t *isolation = json_object_get(answer, "isolation");
        return isolation ? json_incref(isolation) : json_object();
}

/* ---- quotas ---- */

/* Is there room for one more? An existing one needs none. */
bool sandbox_has_room(const struct api_request *api_request, const char *user_id, struct err *err) {
        const struct service *service = api_request->service;
        const char *owner = api_request->visitor.owner;
        if (caller_is_operator(&api_request->caller) || session_find(service->manager, owner, user_id))
                return true;
        const struct share_claim one = { .key = owner, .amount = 1,
                                         .key_max = api_request->visitor.use->quota.sandboxes };
        return share_judge(&service->manager->shares, SHARE_SANDBOXES, &one, service_count_sandboxes(service, owner),
                           service_count_sandboxes(service, NULL), err) == 0;
}

/* ---- create ---- */

/* "full" refuses a host that can enforce less than everything, whatever its operator accepts. */
static int check_isolation(const struct api_request *api_request, json_t *body, struct err *err) {
        json_t *wanted = json_object_get(body, "min_isolation");
        const char *name = json_string_value(wanted);
        if (!wanted || json_is_null(wanted) || (name && strcmp(name, "weaker") == 0))
                return 0;
        if (!name || strcmp(name, "full") != 0)
                return err_set(err, ERR_USAGE, "min_isolation is \"full\" or \"weaker\"");
        if (api_request->service->manager->options->allow_weaker)
                return err_set(err, ERR_UNSUPPORTED, "this service runs with --allow-weaker: it does not promise full "
                               "isolation; GET …/isolation says what there is");
        return 0;
}

static void create(struct api_request *api_request, json_t *body) {
        static const char *const kept[] = { "image", "mode", "limits", "env", "mounts", "data", "network", "workspace",
                                            "allow_weaker", "engine", "isolation", NULL };
        const char *user_id = api_request_user(api_request), *key;
        json_t *value, *operation = json_pack("{s:s, s:s}", "op", "session.create", "session", user_id);
        struct err err;
        api_request->shape = shape_sandbox;
        json_object_foreach(body, key, value) {
                size_t i = 0;
                while (kept[i] && strcmp(kept[i], key) != 0)
                        i++;
                if (kept[i])
                        json_object_set(operation, key, value);
                else if (strcmp(key, "min_isolation") != 0) {
                        (void) err_set(&err, ERR_USAGE, "there is no option \"%.60s\"; /docs lists those there are",
                                       key);
                        api_request_refuse(api_request, &err);
                        json_decref(operation);
                        return;
                }
        }
        if (check_isolation(api_request, body, &err) < 0 ||
            !sandbox_has_room(api_request, user_id, &err)) {
                api_request_refuse(api_request, &err);
                json_decref(operation);
                return;
        }
        api_request_ask(api_request, operation);
}

void sandbox_create(struct api_request *api_request) {
        api_request_read_json(api_request, create);
}

/* ---- the rest ---- */

static void ask(struct api_request *api_request, const char *operation) {
        api_request_ask(api_request, json_pack("{s:s, s:s}", "op", operation, "session", api_request_user(api_request)));
}

void sandbox_list(struct api_request *api_request) {
        api_request->shape = shape_list;
        api_request_ask(api_request, json_pack("{s:s}", "op", "session.list"));
}

void sandbox_show(struct api_request *api_request) {
        api_request->shape = shape_sandbox;
        ask(api_request, "session.show");
}

void sandbox_isolation(struct api_request *api_request) {
        api_request->shape = shape_isolation;
        ask(api_request, "session.show");
}

void sandbox_destroy(struct api_request *api_request) {
        struct http_pairs query;
        struct err err;
        if (http_query_parse(http_query(api_request->request), &query, &err) < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        const char *keep = http_query_find(&query, "keep_files");
        bool keeps = keep && (strcmp(keep, "true") == 0 || strcmp(keep, "1") == 0);
        bool is_clear = !keep || keeps || strcmp(keep, "false") == 0 || strcmp(keep, "0") == 0;
        http_query_free(&query);
        if (!is_clear) { /* what is misspelled must not remove files */
                (void) err_set(&err, ERR_USAGE, "keep_files is true or false");
                api_request_refuse(api_request, &err);
                return;
        }
        api_request_ask(api_request, json_pack("{s:s, s:s, s:b}", "op", "session.remove", "session", api_request_user(api_request),
                                         "keep_files", keeps));
}

void sandbox_interrupt(struct api_request *api_request) {
        ask(api_request, "session.interrupt");
}

void sandbox_restart(struct api_request *api_request) {
        ask(api_request, "session.restart");
}

static void hibernate(struct api_request *api_request, json_t *body) {
        json_t *operation = json_pack("{s:s, s:s}", "op", "session.hibernate", "session", api_request_user(api_request));
        json_t *depth = json_object_get(body, "depth");
        if (depth)
                json_object_set(operation, "depth", depth);
        api_request_ask(api_request, operation);
}

void sandbox_hibernate(struct api_request *api_request) {
        api_request_read_json(api_request, hibernate);
}
