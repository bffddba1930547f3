/* A session's own copy of its row, in its state directory: where the registry was damaged, sessions are found again by
 * it. It is written right after the row and taken away right before it, so that a passport always stands for a session.
 */
#pragma once

#include "session/registry.h"

/* Appears whole or not at all. */
int passport_write(const char *state_dir, const struct registry_session *row, struct err *err);
void passport_remove(const char *state_dir);

/* There is one, readable or not: what is beside it belongs to somebody. */
bool passport_exists(const char *state_dir);

/* ERR_NOT_FOUND when there is none that can be read, or it is not what was written. */
int passport_read(const char *state_dir, struct registry_session *ret_row, struct err *err);
