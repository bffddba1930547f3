/* The arguments of the entry (guest/entry). An engine whose settings would need quoting passes them in a file. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "engine/engine.h"

/* A list of texts: the program, then its arguments. */
json_t *entry_arguments(const struct engine_order *order);

/* Writes the same list to the file ENGINE_ARGUMENTS of the box, with NUL after each text. */
int entry_arguments_write(const struct engine_order *order, struct err *err);
