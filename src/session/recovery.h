/* Recovers a session whose kernel ended while no daemon was running: after a reboot, after the death of daemon and
 * vault, or where records are damaged. An open request is ended with what is known about it. */
#pragma once

#include <stdbool.h>

#include "journal/journal.h"

struct err;
struct run;
struct session;

/* For a session without a kernel, or with a new one without requests: ends the open request in its journal, and records
 * where the variables are: in the sleep file, or lost. */
void recovery_settle(struct session *session, struct journal *journal);

/* The same for a session without a kernel, and sets its state. -1: there were too few descriptors or too little memory
 * to read its journal, and nothing was written. */
int recovery_settle_session(struct session *session, struct err *err);

/* Records that the variables of a session without a kernel are in a sleep file that was written elsewhere. */
int recovery_take_sleep_file(struct session *session, struct err *err);

/* True if a kernel that outlived its daemon holds the session's variables. If not, they are in the sleep file, or were
 * given up. */
bool recovery_kernel_counts(struct session *session);

/* Has this run begun? 1 or 0; -1: there were too few descriptors or too little memory to find out. */
int recovery_knows_run(struct session *session, const char *run_id, struct err *err);

/* Writes down that a run which was acknowledged never began, and why. */
void recovery_record_failure(struct run *run, const struct err *err);
