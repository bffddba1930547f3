/* The run of a session that is on: its start, its deadline, its interrupts and its end. */
#pragma once

#include "kernel/kernel.h"
#include "session/session.h"

/* Sends the first run of the queue to the kernel, which is free. A run that cannot be sent fails and leaves the
 * queue. */
void session_start_run(struct session *session);

/* The kernel has answered the run. The result waits while artifacts are collected or the disk is measured. */
void session_finish_run(struct session *session, const struct kernel_reply *reply);

/* The kernel has answered the run, and the answer is lost: the record is damaged. */
void session_finish_run_without_result(struct session *session);

/* The kernel of the run is dead: ends it with what is known. */
void session_finish_run_dead(struct session *session);

/* True if a helper job collects the artifacts of the run that is on first. When it is done, the run is finished with
 * `reply`; without one the kernel is dead, and the listener's `ended` is called again. */
bool session_collect_first(struct session *session, const struct kernel_reply *reply);

/* The run that is open in the journal of a kernel that outlived its daemon. Its time limit counts from its start. */
void session_adopt_run(struct session *session, const struct journal_request *open);
