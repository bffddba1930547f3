/* The host image: the machine's own programs and libraries, read-only, and nothing of its users. */
#pragma once

#include "base/err.h"
#include "image/image.h"

/* What of the machine is shown, where it exists. */
extern const char *const host_places[];
extern const size_t host_n_places;

/* Fills the image's trees, links, interpreter and shell. host_fd is <data>/images/host or -1,
 * shared_fd another one, whose layer counts if it is for this Python, or negative. A host without Python is
 * no error: python is "" then. On failure what was added stays in the image for image_close. */
int host_show(int host_fd, int shared_fd, struct image *image, struct err *err);
