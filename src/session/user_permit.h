/* A command as another user of a sandbox with users.
 *
 * The kernel runs commands, but tenant code controls it, so it cannot change users. The daemon therefore sends the
 * agent, which is Glovebox's own program, a permit (FRAME_PERMIT): one command, its id and its user. The kernel gets
 * the same run, and hands the agent its streams under that id (guest/agent/users.h). Code in the box cannot start
 * anything else as another user. */
#pragma once

#include <jansson.h>

#include "base/err.h"

struct run;
struct session;

/* Checks that this payload of EXECUTE may run in the session. If its user is the sandbox's own, the field is
 * removed. */
int user_permit_check(const struct session *session, json_t *payload, struct err *err);

/* Before a run is sent to its kernel; nothing when it names no user. */
int user_permit_send(const struct run *run, struct err *err);
