/* The environment of code in a box: nothing of ours, a few things it needs, then what the caller gave. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "box/limits.h"
#include "image/image.h"

#define BOX_PATH "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

/* NULL-terminated "NAME=value" texts, freed with environment_free. A box with a network is told where its proxy is.
 * `extra` (NULL or NULL-terminated) wins. */
char **environment_make(const struct image *image, const struct limits *limits, bool has_network, char *const *extra,
                        struct err *err);
void environment_free(char **environment);
