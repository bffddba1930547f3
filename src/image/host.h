/* The host image: the machine's own programs and libraries, read-only, and nothing of its users. */
#pragma once

#include "base/err.h"
#include "image/image.h"
#include "image/stat_snapshot.h"

/* Fills the image's trees, links, interpreter and shell. host_fd is <data>/images/host or -1,
 * shared_fd another one, whose layer counts if it is for this Python, or negative. A host without Python is
 * no error: python is "" then. On failure what was added stays in the image for image_close. */
int host_show(int host_fd, int shared_fd, struct image *image, struct err *err);

/* Adds every path that image_open looks at for the host image with the system's own interpreter. 0 or -errno. */
int host_stat(struct stat_snapshot *list, const char *data_dir);
