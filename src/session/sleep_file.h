/* The sleep file of a session, state/<id>/kernel/sleep: the variables that its kernel wrote when it was put to sleep.
 * Code in the box can put anything there. An ephemeral session has none. */
#pragma once

#include <stdbool.h>

struct session;

#define SLEEP_FILE "sleep"

/* True if it is there under its final name: then it is complete. */
bool sleep_file_exists(const struct session *session);
void sleep_file_remove(const struct session *session);

/* Renames a file that cannot be loaded, so that a person can look at it, and logs why. */
void sleep_file_set_aside(const struct session *session, const char *why);
