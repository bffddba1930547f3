/* The environment of code in a box: nothing of ours, a few things it needs, then what the caller gave. */
#pragma once

#include "base/err.h"
#include "box/limits.h"
#include "image/image.h"

#define BOX_PATH "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

/* NULL-terminated "NAME=value" texts, freed with environment_free. `extra` (NULL or NULL-terminated) wins. */
char **environment_make(const struct image *image, const struct limits *limits, char *const *extra, struct err *err);
void environment_free(char **environment);
