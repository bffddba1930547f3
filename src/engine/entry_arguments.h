/* What the entry (guest/entry) is told: its arguments, or a file with them where an engine's settings are texts that
 * would have to be quoted. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "engine/engine.h"

/* A list of texts, the program first. */
json_t *entry_arguments(const struct engine_order *order);

/* The same, each followed by NUL, as ENGINE_ARGUMENTS of the box. */
int entry_arguments_write(const struct engine_order *order, struct err *err);
