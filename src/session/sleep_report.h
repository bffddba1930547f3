/* A kernel's report about a sleep or a wake, shortened for people. The kernel's box wrote it. */
#pragma once

#include <jansson.h>

#include "base/err.h"

/* The lists "not_carried" (what sleep does not carry), "damaged" (variables whose bytes on the disk were not what was
 * written), "lost" (surroundings), "files_lost", and "error"; those that are empty are left out. A new reference. */
json_t *sleep_report(const json_t *answer);

/* Why a session could not be put to sleep or trimmed. */
void sleep_error(const char *session, const json_t *answer, struct err *ret_err);
