#include "image/stat_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Every change of a file, and its replacement by another, changes one of these: the change time cannot be set. */
static struct stat_entry stat_entry_of(const char *path, bool follow) {
        struct stat status;
        struct stat_entry entry = { .follow = follow };
        entry.exists = fstatat(AT_FDCWD, path, &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0;
        if (entry.exists) {
                entry.device = status.st_dev;
                entry.inode = status.st_ino;
                entry.mode = status.st_mode;
                entry.changed = status.st_ctim;
        }
        return entry;
}

int stat_snapshot_add(struct stat_snapshot *list, const char *path, bool follow) {
        if (list->n == STAT_SNAPSHOT_MAX)
                return -ENOSPC;
        struct stat_entry entry = stat_entry_of(path, follow);
        entry.path = strdup(path);
        if (!entry.path)
                return -ENOMEM;
        list->entries[list->n++] = entry;
        return 0;
}

bool stat_snapshot_is_current(const struct stat_snapshot *list) {
        for (size_t i = 0; i < list->n; i++) {
                const struct stat_entry *was = &list->entries[i];
                struct stat_entry is = stat_entry_of(was->path, was->follow);
                if (is.exists != was->exists || is.device != was->device || is.inode != was->inode ||
                    is.mode != was->mode || is.changed.tv_sec != was->changed.tv_sec ||
                    is.changed.tv_nsec != was->changed.tv_nsec)
                        return false;
        }
        return true;
}

void stat_snapshot_release(struct stat_snapshot *list) {
        for (size_t i = 0; i < list->n; i++)
                free(list->entries[i].path);
        list->n = 0;
}
