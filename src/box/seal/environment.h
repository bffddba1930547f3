/* The environment of code in a box: a few variables it needs, then those of the caller; nothing of Glovebox's own. */
#pragma once

#include "base/err.h"
#include "box/limits.h"
#include "image/image.h"

#define BOX_EXTRA_PROGRAMS "/opt/glovebox/bin" /* what an image may lack: `python` */
#define BOX_PATH "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:" BOX_EXTRA_PROGRAMS

/* NULL-terminated "NAME=value" texts, freed with environment_free. A box with a network gets the address of its proxy.
 * `extra` (NULL or NULL-terminated) wins. */
char **environment_make(const struct image *image, const struct limits *limits, bool has_network, char *const *extra,
                        struct err *err);
void environment_free(char **environment);

/* "PATH=...": the image's own, or BOX_PATH, with the directory of its Python. The caller frees it; NULL: no memory. */
char *environment_path(const struct image *image);

/* The image's value of `prefix` ("NAME="), or NULL. Borrowed from the image. */
const char *environment_image_value(const struct image *image, const char *prefix);
