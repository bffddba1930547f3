/* What a session is asked to have, looked at when it is made: what could never be is refused then, and not at each of
 * its runs. The maker looks again when it opens things, since they may have changed. What a program is shown, the maker
 * alone looks at: its box is made at once. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "session/session_config.h"

struct caller;
struct registry_session;

/* "env", "mounts", "data" and "workspace" of the request, and the row's image. */
int session_config_check(const struct caller *caller, json_t *json, enum session_config_look look,
                         const struct registry_session *row, struct err *err);

/* An object of variables; NULL is none. */
int session_config_check_env(json_t *env, struct err *err);

/* No members but these (ended by NULL): what is misspelled must not be ignored. `where` is for the message. */
int session_config_check_members(json_t *json, const char *where, const char *const *known, struct err *err);
