/* Images: the file systems of boxes. `host` is the machine's own /usr, read-only, with an optional layer of Python
 * packages that `glovebox image build` installs; the others were imported from tar files.
 *
 * <data> is the data directory; what it lacks is looked for in the shared one (base/data_dir.h), read-only.
 *
 *   <data>/images/<name>/image.json     what it is
 *   <data>/images/<name>/rootfs/        an imported file system (absent for host)
 *   <data>/images/<name>/python/        the package layer (mounted at /opt/glovebox/python)
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define IMAGE_LAYER_PATH "/opt/glovebox/python"

/* One read-only tree of the host shown in a box. */
struct image_tree {
        int fd;          /* O_PATH, what to show */
        char path[256];  /* where, absolute, inside the box */
};

/* One symbolic link at the top of the box, such as /bin -> usr/bin. */
struct image_link {
        char path[64];
        char target[256];
};

enum { IMAGE_TREES_MAX = 48, IMAGE_LINKS_MAX = 24, IMAGE_ENV_MAX = 4096 };

/* An image opened for use. Trees and links are mounted in the box's tmpfs root; the box makes /dev, /proc, /tmp, /etc
 * (if own_etc) and /workspace. */
struct image {
        char name[256];
        char python[256];      /* interpreter inside the box, or "" when the image has none */
        char shell[256];       /* /bin/bash or /bin/sh, or "" */
        bool own_etc;          /* the box makes its own /etc (host image); otherwise the image's is shown */
        bool has_layer;
        char env[IMAGE_ENV_MAX]; /* "NAME=VALUE" of an imported image, each with its NUL; "" ends them */
        struct image_tree trees[IMAGE_TREES_MAX];
        size_t n_trees;
        struct image_link links[IMAGE_LINKS_MAX];
        size_t n_links;
};

/* Opens the image `name` below `data_dir`. `host` always exists. The caller closes it with image_close. */
int image_open(const char *data_dir, const char *name, struct image *ret_image, struct err *err);
void image_close(struct image *image);

/* Another struct image with descriptors of its own. */
int image_copy(const struct image *image, struct image *ret_copy, struct err *err);

/* <data>/images/<name>, or the shared one (base/data_dir.h) where there is none: a descriptor or -errno. */
int image_open_directory(const char *data_dir, const char *name, bool *ret_shared);

/* The shared images/host when the own one (`host_fd`, or -1) has no layer; else -ENOENT. */
int image_open_shared_host(int host_fd);

/* How many of an image's variables a box will not have: no names, or more than IMAGE_ENV_MAX bytes. */
size_t image_count_lost_env(const json_t *env);

/* Image names: [a-z0-9][a-z0-9._-]{0,63}. */
int image_check_name(const char *name, struct err *err);
