/* A session that moves to the remote, or back: its files and its sleep file are carried over by a child, then the row
 * of the session changes. Until then the session is where it was, whatever fails. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct caller;
struct session;
struct session_manager;

/* Does a move with these options lead to the remote, or away from it? */
bool remote_move_is_meant(const struct caller *caller, const char *session, json_t *options);

/* Answered with the session, as it is there; "left_behind" lists what did not come along. It must sleep, or have no
 * variables. */
int remote_move(struct caller *caller, const char *session, json_t *options, struct err *err);

/* Removes sessions at the remote that were made for this daemon and that it does not know (any more). */
void remote_sweep(struct session_manager *manager);
