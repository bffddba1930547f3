/* Moves a session to another engine. Its directory, its journal and its sleep file stay where they are: every engine
 * shows them to its boxes. So a move is a change of the row of a session that has no kernel. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "store/registry.h"

struct session;

/* By "engine", "isolation" and "image" of the request. The session's record is made anew; *session is the new one, or
 * NULL when that failed. ERR_BUSY while it has a kernel or runs: it is put to sleep first. */
int session_move_engine(struct session **session, json_t *json, struct err *err);

/* The row that a session would have then. */
int session_move_plan(const struct session *session, json_t *json, struct registry_session *ret_row, struct err *err);
