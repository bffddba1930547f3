/* The part of `glovebox doctor` on engines. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* All engines, native first: name, state ("yes" or "no"), detail (its version and address, or why it does not answer),
 * fix, and whether `auto` chooses it. Each is contacted, for a few seconds at most. `native_can`: this host can make
 * boxes of its own. */
json_t *doctor_engines_look(bool native_can);

void doctor_engines_print(const json_t *engines);
