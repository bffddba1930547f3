/* Describes for a model what the sandboxes of a caller can reach. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* Of these options of session.create (or NULL): a fresh text, or NULL when memory is short. */
char *place_describe(const json_t *options);

/* True if the daemon was started for the conformance tests. */
bool place_has_fixtures(void);
