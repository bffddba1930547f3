/* Moves a session to the remote, or back: a child copies its files and its sleep file, then the session's row changes.
 * If a step fails before that, the session stays where it was. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct caller;
struct session;
struct session_manager;

/* True if the session is at the remote, or if these options move it there. */
bool remote_move_is_meant(const struct caller *caller, const char *session, json_t *options);

/* The answer is the session as it is there; "left_behind" lists what was not moved. The session must sleep, or have no
 * variables. */
int remote_move(struct caller *caller, const char *session, json_t *options, struct err *err);

/* Removes sessions at the remote that were made for this daemon and are not in its registry. */
void remote_sweep(struct session_manager *manager);
