/* Prints sessions, their runs and the daemon's state, from the JSON of the daemon. A field that a daemon of another
 * version lacks is shown as "-". */
#pragma once

#include <jansson.h>

/* The name that every verb takes: "key/name" of what belongs to a key of the service. Returns ret_text. */
const char *session_print_name(const json_t *session, char ret_text[static 140]);

void session_print_list(const json_t *sessions);
void session_print_names(const json_t *sessions);
void session_print_one(const json_t *session);
void session_print_runs(const json_t *runs);
void status_print(const json_t *status);
