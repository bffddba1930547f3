/* Sessions, their runs and the daemon's state as the daemon describes them in JSON, printed for people. What a field of
 * another version lacks is shown as "-". */
#pragma once

#include <jansson.h>

void session_print_list(const json_t *sessions);
void session_print_names(const json_t *sessions);
void session_print_one(const json_t *session);
void session_print_runs(const json_t *runs);
void status_print(const json_t *status);
