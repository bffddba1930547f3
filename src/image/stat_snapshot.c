#include "image/stat_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/data_dir.h"
#include "base/memory.h"
#include "image/host.h"
#include "image/layer.h"
#include "image/python.h"
#include "image/store.h"

/* Anything that is done to a file, a replacement by another included, changes one of these: the time of change cannot
 * be set. */
static struct stat_snapshot_entry look(const char *path, bool follow) {
        struct stat status;
        struct stat_snapshot_entry seen = { .follow = follow };
        seen.is_there = fstatat(AT_FDCWD, path, &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0;
        if (seen.is_there) {
                seen.device = status.st_dev;
                seen.inode = status.st_ino;
                seen.mode = status.st_mode;
                seen.changed = status.st_ctim;
        }
        return seen;
}

int stat_snapshot_add(struct stat_snapshot *list, const char *path, bool follow) {
        if (list->n == WITNESSES_MAX)
                return -ENOSPC;
        struct stat_snapshot_entry seen = look(path, follow);
        seen.path = strdup(path);
        if (!seen.path)
                return -ENOMEM;
        list->witnesses[list->n++] = seen;
        return 0;
}

int stat_snapshot_host(struct stat_snapshot *list, const char *data_dir) {
        static const char *const below[] = { "", "/" LAYER_DIR, "/" LAYER_DIR "/" LAYER_RECORD };
        static const char *const programs[] = { "/bin/bash", "/bin/sh", PYTHON_OF_SYSTEM };
        int code = 0;
        for (size_t i = 0; i < host_n_places && code == 0; i++)
                code = stat_snapshot_add(list, host_places[i], false);
        for (size_t i = 0; i < ELEMENTS(programs) && code == 0; i++)
                code = stat_snapshot_add(list, programs[i], true);
        if (code == 0)
                code = stat_snapshot_add(list, PYTHON_OF_SYSTEM, false); /* the link's target tells the version */
        const char *const stores[] = { data_dir, data_dir_shared() };
        for (size_t i = 0; i < ELEMENTS(below) * ELEMENTS(stores) && code == 0; i++) {
                _cleanup_free_ char *path = NULL;
                const char *store = stores[i / ELEMENTS(below)];
                if (!*store)
                        continue;
                if (asprintf(&path, "%s/images/" IMAGE_HOST "%s", store, below[i % ELEMENTS(below)]) < 0)
                        return -ENOMEM;
                code = stat_snapshot_add(list, path, false);
        }
        return code;
}

bool stat_snapshot_all_hold(const struct stat_snapshot *list) {
        for (size_t i = 0; i < list->n; i++) {
                const struct stat_snapshot_entry *was = &list->witnesses[i];
                struct stat_snapshot_entry is = look(was->path, was->follow);
                if (is.is_there != was->is_there || is.device != was->device || is.inode != was->inode ||
                    is.mode != was->mode || is.changed.tv_sec != was->changed.tv_sec ||
                    is.changed.tv_nsec != was->changed.tv_nsec)
                        return false;
        }
        return true;
}

void stat_snapshot_release(struct stat_snapshot *list) {
        for (size_t i = 0; i < list->n; i++)
                free(list->witnesses[i].path);
        list->n = 0;
}
