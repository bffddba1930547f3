/* Packages for a session. */
#include "daemon/operation.h"
#include "session/caller.h"
#include "session/install.h"
#include "session/session_config.h"
#include "store/requirement.h"

static int check_packages(json_t *packages, struct err *err) {
        size_t i;
        json_t *item;
        if (!json_is_array(packages) || json_array_size(packages) == 0 || json_array_size(packages) > REQUIREMENTS_MAX)
                return err_set(err, ERR_USAGE,
                               "\"packages\" must be given: a list of 1 to %d texts such as \"attrs>=23\"",
                               REQUIREMENTS_MAX);
        json_array_foreach(packages, i, item) {
                if (!json_is_string(item))
                        return err_set(err, ERR_USAGE, "\"packages\" holds texts only, such as \"attrs>=23\"");
                if (requirement_check(json_string_value(item), err) < 0)
                        return -1;
        }
        return 0;
}

static int install(struct caller *caller, json_t *json, struct err *err) {
        json_t *packages = json_object_get(json, "packages");
        json_int_t timeout_ms = json_integer_value(json_object_get(json, "timeout_ms"));
        bool created;
        if (check_packages(packages, err) < 0)
                return -1;
        struct session *session = session_config_find_or_create(caller, json, &created, err);
        if (!session)
                return -1;
        caller->stream = json_is_true(json_object_get(json, "stream"));
        caller->cancel_on_disconnect = json_is_true(json_object_get(json, "cancel_on_disconnect"));
        return install_begin(session, caller, packages, timeout_ms > 0 ? (uint64_t) timeout_ms : INSTALL_TIMEOUT_MS,
                             err);
}

const struct operation operations_install[] = { { "session.install", install }, { NULL, NULL } };
