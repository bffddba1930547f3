/* Sandboxes: the sessions of a key, one for each user_id. */
#include <string.h>

#include "api/api_request.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "daemon/operation.h"
#include "daemon/remote.h"
#include "http/query.h"
#include "session/remote_place.h"
#include "session/session.h"
#include "session/session_config_check.h"
#include "session/session_info.h"

/* ---- how one is shown ---- */

/* Only the operator sees its paths and process ids on the host. */
static struct session_info_form form_for(const struct api_request *api_request, bool is_brief) {
        return (struct session_info_form) { .name_key = "user_id",
                                            .is_brief = is_brief,
                                            .hides_host = !caller_is_operator(&api_request->caller) };
}

/* ---- quotas ---- */

/* Checks that the quota allows one more. An existing sandbox needs none. */
bool sandbox_owner_has_room(const struct service *service, const struct visitor *visitor, const char *user_id,
                            struct err *err) {
        if (session_find(service->manager, visitor->owner, user_id))
                return true;
        const struct share_claim one = { .key = visitor->owner, .amount = 1, .key_max = visitor->use->quota.sandboxes };
        return share_judge(&service->manager->shares, SHARE_SANDBOXES, &one,
                           service_count_sandboxes(service, visitor->owner), service_count_sandboxes(service, NULL),
                           err) == 0;
}

bool sandbox_has_room(const struct api_request *api_request, const char *user_id, struct err *err) {
        return caller_is_operator(&api_request->caller) ||
               sandbox_owner_has_room(api_request->service, &api_request->visitor, user_id, err);
}

/* ---- create ---- */

/* "full" refuses a host that cannot enforce everything, even if its operator accepts that. */
int sandbox_check_isolation(const struct api_request *api_request, json_t *body, struct err *err) {
        json_t *wanted = json_object_get(body, "min_isolation");
        const char *name = json_string_value(wanted);
        if (!wanted || json_is_null(wanted) || (name && strcmp(name, "weaker") == 0))
                return 0;
        if (!name || strcmp(name, "full") != 0)
                return err_set(err, ERR_USAGE, "min_isolation must be \"full\" or \"weaker\"");
        if (api_request->service->manager->options->allow_weaker)
                return err_set(err, ERR_UNSUPPORTED,
                               "this service runs with --allow-weaker: it does not promise full "
                               "isolation; GET …/isolation says what there is");
        return 0;
}

/* Its instance exists now: answers as for any new sandbox. */
static void answer_made(struct api_request *api_request, const char *answer, size_t size) {
        const struct session_info_form form = form_for(api_request, false);
        const struct session *session = remote_find(&api_request->caller, api_request_user(api_request));
        struct err err;
        (void) answer;
        (void) size;
        if (!session) {
                (void) err_set(&err, ERR_GONE, "the sandbox was removed while it was made");
                api_request_refuse(api_request, &err);
                return;
        }
        const struct session_info info = session_info_of(session);
        api_request_answer(api_request, 201, session_info_to_json(&info, &form));
}

/* A sandbox in an instance is made at once: whether there can be one is known then. 1: it is being made. */
static int make_instance(struct api_request *api_request, const struct session_created *created, struct err *err) {
        struct session *session =
                created->is_new ? remote_find(&api_request->caller, api_request_user(api_request)) : NULL;
        if (!session || !remote_place_of(session).is_instance)
                return 0;
        json_decref(created->unchanged);
        api_request->finish = answer_made;
        api_request_attend(api_request);
        return remote_create(&api_request->caller, session, true, err) < 0 ? -1 : 1;
}

static void create_from_json(struct api_request *api_request, json_t *body) {
        const struct session_info_form form = form_for(api_request, false);
        static const char *const own[] = { "min_isolation", NULL };
        const char *user_id = api_request_user(api_request);
        struct session_created created;
        struct err err;
        if (session_config_check_options(body, "create", own, &err) < 0 ||
            sandbox_check_isolation(api_request, body, &err) < 0 || !sandbox_has_room(api_request, user_id, &err) ||
            operation_session_create(&api_request->caller, user_id, body, &created, &err) < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        int code = make_instance(api_request, &created, &err);
        if (code < 0)
                api_request_refuse(api_request, &err);
        if (code != 0)
                return;
        json_t *answer = session_info_to_json(&created.info, &form);
        if (created.unchanged)
                json_object_set_new(answer, "unchanged", created.unchanged);
        api_request_answer(api_request, created.is_new ? 201 : 200, answer);
}

void sandbox_create(struct api_request *api_request) {
        api_request_read_json(api_request, create_from_json);
}

/* ---- the rest ---- */

struct sandbox_list {
        json_t *sandboxes;
        struct session_info_form form;
};

static void add_sandbox(void *context, const struct session_info *info) {
        const struct sandbox_list *list = context;
        (void) json_array_append_new(list->sandboxes, session_info_to_json(info, &list->form));
}

void sandbox_list(struct api_request *api_request) {
        struct sandbox_list list = { json_array(), form_for(api_request, true) };
        operation_session_list(&api_request->caller, add_sandbox, &list);
        api_request_answer(api_request, 200, json_pack("{s:o}", "sandboxes", list.sandboxes));
}

void sandbox_show(struct api_request *api_request) {
        const struct session_info_form form = form_for(api_request, false);
        struct session_details details;
        struct err err;
        if (operation_session_show(&api_request->caller, api_request_user(api_request), &details, &err) < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        json_t *answer = session_info_to_json(&details.info, &form);
        json_object_set_new(answer, "runs", details.runs);
        json_object_set_new(answer, "isolation", details.isolation);
        api_request_answer(api_request, 200, answer);
}

void sandbox_isolation(struct api_request *api_request) {
        struct session_details details;
        struct err err;
        if (operation_session_show(&api_request->caller, api_request_user(api_request), &details, &err) < 0) {
                api_request_refuse(api_request, &err);
                return;
        }
        json_decref(details.runs);
        api_request_answer(api_request, 200, details.isolation);
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
        if (!is_clear) { /* a misspelled parameter must not remove files */
                (void) err_set(&err, ERR_USAGE, "keep_files must be true or false");
                api_request_refuse(api_request, &err);
                return;
        }
        api_request_attend(api_request);
        api_request_settle(api_request,
                           operation_session_remove(&api_request->caller, api_request_user(api_request), keeps, &err),
                           &err);
}

void sandbox_interrupt(struct api_request *api_request) {
        struct err err;
        api_request_attend(api_request);
        api_request_settle(api_request,
                           operation_session_interrupt(&api_request->caller, api_request_user(api_request), &err),
                           &err);
}

void sandbox_restart(struct api_request *api_request) {
        struct err err;
        api_request_attend(api_request);
        api_request_settle(api_request,
                           operation_session_restart(&api_request->caller, api_request_user(api_request), &err), &err);
}

static void hibernate_from_json(struct api_request *api_request, json_t *body) {
        const char *depth = json_string_value(json_object_get(body, "depth"));
        struct err err;
        api_request_attend(api_request);
        api_request_settle(api_request,
                           operation_session_hibernate(&api_request->caller, api_request_user(api_request),
                                                       depth && strcmp(depth, "trim") == 0, &err),
                           &err);
}

void sandbox_hibernate(struct api_request *api_request) {
        api_request_read_json(api_request, hibernate_from_json);
}
