/* A check of untrusted JSON before it is parsed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* False if it has so many values that the parsed tree would need far more memory than the text: a few megabytes of
 * "[{},{},…" become gigabytes. A string, however long, is a single value. */
bool json_is_bounded(const char *json, size_t size);
