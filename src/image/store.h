/* <data>/images: the list of images, and creating one atomically. */
#pragma once

#include <stddef.h>

#include "base/err.h"

#define IMAGE_HOST "host"

/* Opens <data_dir>/images, made when missing. Returns 0 and a descriptor that the caller closes. */
int store_open(const char *data_dir, int *ret_images_fd, struct err *err);

/* Names of imported images in order, `host` not among them. The caller frees the array. */
int store_list(int images_fd, char (**ret_names)[65], size_t *ret_n, struct err *err);

/* A private directory being filled. It is locked while this process runs; the next store_begin removes those of ended
 * processes. */
struct store_work {
        int images_fd; /* borrowed */
        int fd;
        char name[32];
};

int store_begin(int images_fd, struct store_work *ret_work, struct err *err);

/* The work becomes the image `name`; fails with ERR_EXISTS when there is one. */
int store_publish(struct store_work *work, const char *name, struct err *err);

/* `item` of the work takes the place of <images>/<image>/<item>; what was there before goes with the work. */
int store_replace(struct store_work *work, const char *image, const char *item, struct err *err);

/* Removes <images>/<image>, or its <item>: the name at once, then its files. */
int store_remove(int images_fd, const char *image, const char *item, struct err *err);

/* Removes the work unless it was published. Never fails; does nothing twice. */
void store_end(struct store_work *work);
