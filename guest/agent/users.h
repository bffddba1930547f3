/* Commands as users of a box with users.
 *
 * Theory of operation. In such a box the agent is root of the box. Its effective capabilities are empty (identity.h); a
 * child that it forks raises them to change to another user, and keeps none unless that is root. The kernel, which is
 * user 1000, has one end of a channel (descriptor and variable USERS_VARIABLE); what it sends is hostile. The host
 * permits one command at a time under a run's id (FRAME_PERMIT): what is executed, where and as whom comes from the
 * host alone. The kernel redeems the permit once, with the three descriptors that become the streams of the command,
 * and may then signal its group:
 *
 *   kernel: "start ID" with three descriptors, "signal N"
 *   agent:  "started", "failed ERRNO TEXT", "ended STATUS" (a wait status)
 *
 * A kernel that closes the channel ends the command. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "polls.h"
#include "request.h"

#define USERS_VARIABLE "GLOVEBOX_USERS_FD"

/* Call it if the box has users: drops the agent's effective capabilities. 0 or -errno. */
int users_begin(void);
bool users_are_there(void);

/* A channel for the first process that the host starts, the kernel: *ret_fd is its end, to be closed by the caller; -1
 * for any other. `envp` is kept as the environment of commands. */
int users_open_channel(char *const *envp, int *ret_fd);

/* FRAME_PERMIT. */
int users_permit(struct request *request);

void users_wait(struct polls *polls);
bool users_happened(const struct polls *polls); /* the kernel has sent something: */
void users_move(void);
void users_reaped(pid_t pid, int status);
void users_release(void);
