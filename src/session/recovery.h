/* Recovers a session whose kernel ended while no daemon was running: after a reboot, after the death of daemon and
 * vault, or where records are damaged. What was open is closed, with what is known about it. */
#pragma once

#include <stdbool.h>

#include "journal/journal.h"

struct err;
struct run;
struct session;

/* Ends whatever is open in the journal of a session that has no kernel, or a new one that was asked nothing yet, and
 * says where its variables are: in the sleep file, or nowhere. */
void recovery_settle(struct session *session, struct journal *journal);

/* The same for a session that has no kernel at all; and its state follows. */
void recovery_settle_session(struct session *session);

/* A session without a kernel is given a sleep file that was written elsewhere: its variables are in there. */
int recovery_take_sleep_file(struct session *session, struct err *err);

/* A kernel that outlived its daemon: does it hold what the session's variables are? If not, the file does, or they were
 * given up. */
bool recovery_kernel_counts(struct session *session);

/* Has this run begun? */
bool recovery_knows_run(struct session *session, const char *run_id);

/* Writes down that a run which was acknowledged never began, and why. */
void recovery_record_failure(struct run *run, const struct err *err);
