/* What `glovebox doctor` tells of engines. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* All engines, native first: name, state ("yes" or "no"), detail (its version and where it answers, or why it does not),
 * fix, and whether `auto` chooses it. Asks each that listens, for a few seconds at most. `native_can` says whether this
 * host can make boxes of its own. */
json_t *doctor_engines_look(bool native_can);

void doctor_engines_print(const json_t *engines);
