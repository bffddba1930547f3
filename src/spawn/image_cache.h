/* A view: what a box with a kernel sees of an image. It stays open from one box to the next, and is opened again when
 * the image is not what it was. */
#pragma once

#include <stdint.h>

#include "image/image.h"
#include "image/stat_snapshot.h"
#include "spawn/maker.h"

#define VIEW_KERNEL "/opt/glovebox/kernel" /* the kernel's own files in a box */

struct image_cache {
        struct image image;   /* with the kernel's own files in it */
        uint64_t fingerprint; /* as of nursery_fingerprint, when it was opened */
        struct stat_snapshot witnesses;
        uint64_t seen_ms; /* monotonic: when they were looked at last */
        unsigned n_users;
};

/* As the image was at most this long ago. NULL with err. 0: as it is now, for somebody who asks now. */
struct image_cache *image_cache_open(const struct maker_settings *settings, const char *name, uint64_t age_ms, struct err *err);
void image_cache_close(struct image_cache *view); /* NULL is fine */
