/* Packages for a session. */
#include "daemon/operation.h"
#include "daemon/remote.h"
#include "session/caller.h"
#include "session/install.h"
#include "session/session.h"
#include "session/session_config.h"
#include "store/requirement.h"

static int check_packages(json_t *packages, struct err *err) {
        size_t i;
        json_t *item;
        if (!json_is_array(packages) || json_array_size(packages) == 0 || json_array_size(packages) > REQUIREMENTS_MAX)
                return err_set(err, ERR_USAGE,
                               "\"packages\" must be given: a list of 1 to %d texts such as \"attrs>=23\"",
                               REQUIREMENTS_MAX);
        json_array_foreach (packages, i, item) {
                if (!json_is_string(item))
                        return err_set(err, ERR_USAGE, "\"packages\" holds texts only, such as \"attrs>=23\"");
                if (requirement_check(json_string_value(item), err) < 0)
                        return -1;
        }
        return 0;
}

int operation_install(struct caller *caller, const struct install_request *request, struct err *err) {
        bool created;
        caller_begin(caller, "session.install", request->session);
        if (check_packages(request->packages, err) < 0)
                return -1;
        struct session *session =
                session_config_find_or_create(caller, request->session, request->options, &created, err);
        if (!session)
                return -1;
        caller->stream = request->stream;
        caller->cancel_on_disconnect = request->cancel_on_disconnect;
        if (session->is_remote)
                return remote_pass_new(caller, session, "session.install",
                                       json_pack("{s:O, s:I, s:b, s:b}", "packages", request->packages, "timeout_ms",
                                                 (json_int_t) request->timeout_ms, "stream", (int) request->stream,
                                                 "cancel_on_disconnect", (int) request->cancel_on_disconnect),
                                       err);
        return install_begin(session, caller, request->packages,
                             request->timeout_ms ? request->timeout_ms : INSTALL_TIMEOUT_MS, err);
}
