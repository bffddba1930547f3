/* A check of untrusted JSON before it is parsed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* False when it has so many values that they would cost far more memory than their text: a few megabytes of "[{},{},…"
 * become gigabytes. Figures and texts, however long, are single values. */
bool json_is_bounded(const char *json, size_t size);
