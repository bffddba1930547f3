#include "spawn/image_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/host.h"
#include "image/python.h"
#include "image/store.h"
#include "spawn/nursery.h"

/* The maker is one process with one thread: this is the only owner. */
static struct {
        bool is_valid;
        struct image image;
        uint64_t fingerprint;
        struct stat_snapshot stats; /* of all paths that opening it visited */
} cached;

static int add_kernel(struct image *image, const char *kernel_dir, struct err *err) {
        if (!*image->python)
                return err_set(err, ERR_NOT_FOUND, "image %s has no python3: it cannot hold a kernel", image->name);
        if (image->n_trees == IMAGE_TREES_MAX)
                return err_set(err, ERR_LIMIT, "image %s shows too many directories", image->name);
        struct image_tree *tree = &image->trees[image->n_trees];
        tree->fd = open(kernel_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (tree->fd < 0)
                return err_sys(err, errno, "opening the kernel's own files in %s", kernel_dir);
        (void) snprintf(tree->path, sizeof(tree->path), IMAGE_KERNEL_PATH);
        image->n_trees++;
        return 0;
}

static void image_cache_clear(void) {
        image_close(&cached.image);
        stat_snapshot_release(&cached.stats);
        cached.is_valid = false;
}

/* Before the image is opened. Only the host image with the system's own interpreter is kept: an imported image, or
 * another interpreter, depends on too many paths to check before each box. */
static bool stat_image(const struct maker_settings *settings, const char *name) {
        const char *named = getenv("GLOVEBOX_PYTHON");
        return strcmp(name, IMAGE_HOST) == 0 && !(named && *named) &&
               host_stat(&cached.stats, settings->data_dir) == 0 &&
               stat_snapshot_add(&cached.stats, settings->kernel_dir, true) == 0;
}

static bool has_system_python(const struct image *image) {
        static const char stem[] = PYTHON_OF_SYSTEM ".";
        return strncmp(image->python, stem, strlen(stem)) == 0;
}

static int open_with_kernel(const struct maker_settings *settings, const char *name, struct image *ret_image,
                            struct err *err) {
        if (image_open(settings->data_dir, name, ret_image, err) < 0)
                return -1;
        if (add_kernel(ret_image, settings->kernel_dir, err) == 0)
                return 0;
        image_close(ret_image);
        return -1;
}

int image_cache_open(const struct maker_settings *settings, const char *name, struct image *ret_image,
                     uint64_t *ret_fingerprint, struct err *err) {
        if (!cached.is_valid || strcmp(cached.image.name, name) != 0 || !stat_snapshot_is_current(&cached.stats)) {
                image_cache_clear();
                bool is_kept = stat_image(settings, name);
                if (open_with_kernel(settings, name, &cached.image, err) < 0)
                        return -1;
                cached.fingerprint = nursery_fingerprint(&cached.image);
                cached.is_valid = is_kept && has_system_python(&cached.image);
        }
        *ret_fingerprint = cached.fingerprint;
        int code = image_copy(&cached.image, ret_image, err);
        if (!cached.is_valid)
                image_cache_clear();
        return code;
}
