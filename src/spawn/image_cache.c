#include "spawn/image_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop.h"
#include "image/python.h"
#include "image/store.h"
#include "spawn/nursery.h"

static struct image_cache *kept; /* the last one, for the next box */

void image_cache_close(struct image_cache *view) {
        if (!view || --view->n_users > 0)
                return;
        image_close(&view->image);
        stat_snapshot_release(&view->witnesses);
        free(view);
}

static int add_kernel(struct image *image, const char *kernel_dir, struct err *err) {
        if (!*image->python)
                return err_set(err, ERR_NOT_FOUND, "image %s has no python3: it cannot hold a kernel", image->name);
        if (image->n_trees == IMAGE_TREES_MAX)
                return err_set(err, ERR_LIMIT, "image %s shows too many directories", image->name);
        struct image_tree *tree = &image->trees[image->n_trees];
        tree->fd = open(kernel_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (tree->fd < 0)
                return err_sys(err, errno, "opening the kernel's own files in %s", kernel_dir);
        (void) snprintf(tree->path, sizeof(tree->path), VIEW_KERNEL);
        image->n_trees++;
        return 0;
}

/* Before it is opened. An imported image, and the host's with another interpreter than the system's own, depend on
 * more than is worth watching: they are opened for each box. */
static bool watch(struct image_cache *view, const struct maker_settings *settings, const char *name) {
        const char *named = getenv("GLOVEBOX_PYTHON");
        return strcmp(name, IMAGE_HOST) == 0 && !(named && *named) &&
               stat_snapshot_host(&view->witnesses, settings->data_dir) == 0 &&
               stat_snapshot_add(&view->witnesses, settings->kernel_dir, true) == 0;
}

static bool is_of_system(const struct image *image) {
        static const char stem[] = PYTHON_OF_SYSTEM ".";
        return strncmp(image->python, stem, strlen(stem)) == 0;
}

static bool is_true(struct image_cache *view, uint64_t age_ms) {
        uint64_t now_ms = loop_now_ms();
        if (age_ms && now_ms - view->seen_ms < age_ms)
                return true;
        bool holds = stat_snapshot_all_hold(&view->witnesses);
        if (holds)
                view->seen_ms = now_ms;
        return holds;
}

struct image_cache *image_cache_open(const struct maker_settings *settings, const char *name, uint64_t age_ms, struct err *err) {
        if (kept && strcmp(kept->image.name, name) == 0 && is_true(kept, age_ms)) {
                kept->n_users++;
                return kept;
        }
        struct image_cache *view = calloc(1, sizeof(*view));
        if (!view) {
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
                return NULL;
        }
        view->n_users = 1;
        view->seen_ms = loop_now_ms();
        bool is_watched = watch(view, settings, name);
        if (image_open(settings->data_dir, name, &view->image, err) < 0 ||
            add_kernel(&view->image, settings->kernel_dir, err) < 0) {
                image_cache_close(view);
                return NULL;
        }
        view->fingerprint = nursery_fingerprint(&view->image);
        if (is_watched && is_of_system(&view->image)) {
                image_cache_close(kept);
                kept = view;
                view->n_users++;
        }
        return view;
}
