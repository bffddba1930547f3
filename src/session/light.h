/* Does a run need what is preloaded? Then a full kernel spares it the imports; if not, a light one is there sooner and
 * costs less. Everything works in both: a wrong guess costs time and nothing else, so in doubt it is a full one. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* `what` is the payload of EXECUTE; `preload` names modules, separated by commas or blanks. */
bool light_suits(const json_t *what, const char *preload);
