/* A view: what a box with a kernel sees of an image. It stays open from one box to the next, and is opened again when
 * the image is not what it was. */
#pragma once

#include <stdint.h>

#include "image/image.h"
#include "image/witness.h"
#include "session/maker.h"

#define VIEW_KERNEL "/opt/glovebox/kernel" /* the kernel's own files in a box */

struct view {
        struct image image;   /* with the kernel's own files in it */
        uint64_t fingerprint; /* as of nursery_fingerprint, when it was opened */
        struct witness_list witnesses;
        unsigned n_users;
};

/* As the image is now. NULL with err. With `unseen` the last one does, if it was of this image: for a box that waits,
 * and is compared with the image as it is when it is taken. */
struct view *view_open(const struct maker_settings *settings, const char *name, bool unseen, struct err *err);
void view_close(struct view *view); /* NULL is fine */
