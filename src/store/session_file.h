/* A copy of a session's row in its state directory, from which the session is restored if the registry is damaged. It
 * is written right after the row and removed right before it, so that every session file belongs to a session.
 * */
#pragma once

#include "store/registry.h"

/* Appears whole or not at all. */
int session_file_write(const char *state_dir, const struct registry_session *row, struct err *err);
void session_file_remove(const char *state_dir);

/* True if there is a session file, readable or not: the files beside it belong to a session. */
bool session_file_exists(const char *state_dir);

/* ERR_NOT_FOUND if it is missing, unreadable or damaged. */
int session_file_read(const char *state_dir, struct registry_session *ret_row, struct err *err);
