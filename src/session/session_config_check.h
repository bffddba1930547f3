/* Checks the options of a session when it is made, so that wrong ones are refused then, and not at each of its runs.
 * The maker checks again when it opens the paths, since they may have changed. The mounts of a program are checked by
 * the maker only, because its box is made at once. */
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

/* Refuses members other than these (ended by NULL), so that a misspelled one is not ignored. `where` is for the
 * message. */
int session_config_check_members(json_t *json, const char *where, const char *const *known, struct err *err);

/* The same for a request that makes a session: its options, and `own` of this wire. */
int session_config_check_options(json_t *json, const char *where, const char *const *own, struct err *err);
