/* The image that the last box was made from, kept open for the next one. */
#pragma once

#include <stdint.h>

#include "image/image.h"
#include "spawn/maker.h"

#define IMAGE_KERNEL_PATH "/opt/glovebox/kernel" /* the kernel's own files in a box */

/* Opens the image with the kernel's own files in it. If no path that opening it visits has changed since the last call,
 * the caller gets a copy of the image opened then. The caller closes it with image_close. *ret_fingerprint is
 * nursery_fingerprint of it. */
int image_cache_open(const struct maker_settings *settings, const char *name, struct image *ret_image,
                     uint64_t *ret_fingerprint, struct err *err);
