/* Prints sessions, their runs and the daemon's state, from the JSON of the daemon. A field that a daemon of another
 * version lacks is shown as "-". */
#pragma once

#include <jansson.h>

void session_print_list(const json_t *sessions);
void session_print_names(const json_t *sessions);
void session_print_one(const json_t *session);
void session_print_runs(const json_t *runs);
void status_print(const json_t *status);
