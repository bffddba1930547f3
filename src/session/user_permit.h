/* A command as another user of a sandbox with users.
 *
 * The kernel runs commands, and it is the tenant's: it has no right to become anybody. So the daemon tells the agent,
 * which is Glovebox's own program, what may be started once, under which id and as whom (FRAME_PERMIT); and the kernel,
 * which gets the same run, hands the agent its streams under that id (guest/agent/users.h). Code in the box can start
 * nothing as another user that no caller asked for. */
#pragma once

#include <jansson.h>

#include "base/err.h"

struct run;
struct session;

/* May this payload of EXECUTE be run in the session? A user that is the sandbox's own is taken out of it. */
int user_permit_check(const struct session *session, json_t *payload, struct err *err);

/* Before a run is sent to its kernel; nothing when it names no user. */
int user_permit_send(const struct run *run, struct err *err);
