/* Describes for a model what the sandboxes of a caller can reach. */
#pragma once

#include <jansson.h>

/* Of these options of session.create (or NULL): a fresh text, or NULL when memory is short. */
char *sandbox_text_describe(const json_t *options);
