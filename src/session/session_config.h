/* A session's row from the options of a request: defaults of the daemon, then what the caller asked for, checked. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "store/registry.h"

struct caller;
struct session;

/* When are the directories opened that a box is to be shown? A program's box is made at once, so the maker, a moment
 * later, opens them: for a large tree that takes long, and all other callers of the daemon would wait. */
enum session_config_look {
        SESSION_CONFIG_LOOK_NOW,
        SESSION_CONFIG_LOOK_LATER,
        SESSION_CONFIG_LOOK_NOT, /* at the image neither: it is a session's that exists, or one for later */
};

/* Checks that a key of the service may have these limits. The operator may have any. */
int session_config_check_ceiling(const struct caller *caller, const struct limits *limits, struct err *err);

/* Writes those limits that the object "limits" of a request names. */
int session_config_read_limits(json_t *json, struct limits *limits, struct err *err);

/* Fills a row from "image", "mode", "limits", "env", "mounts", "data", "workspace", "network", "users", "allow_weaker".
 * Mounts beyond what the daemon allows to all, a workspace and "allow_weaker" are the operator's. */
int session_config_from_json(const struct caller *caller, json_t *json, enum session_config_look look,
                             struct registry_session *ret_row, struct err *err);

/* Refuses for a session that exists what would be refused for a new one. Directories are not opened. */
int session_config_check_request(const struct caller *caller, const struct session *session, json_t *json,
                                 struct err *err);

/* True if the box has more than one user (the option "users"). */
bool session_config_has_users(const struct registry_session *row);

/* The options in the request that differ from those of the session: names such as "memory" or "network". */
json_t *session_config_list_unchanged(const struct session *session, json_t *json);

/* The session of this name, made with these options (NULL: none) when it does not exist. */
struct session *session_config_find_or_create(struct caller *caller, const char *name, json_t *options,
                                              bool *ret_created, struct err *err);
