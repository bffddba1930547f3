/* The results of stat() for a list of paths. While they stay the same, data read from these paths are still valid. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

enum { STAT_SNAPSHOT_MAX = 48 };

struct stat_entry {
        char *path;
        bool follow; /* stat(), not lstat() */
        bool exists; /* else the rest is 0 */
        dev_t device;
        ino_t inode;
        mode_t mode;
        struct timespec changed;
};

/* All zeroes is an empty list. */
struct stat_snapshot {
        struct stat_entry entries[STAT_SNAPSHOT_MAX];
        size_t n;
};

/* To be called before the path is read: a change in between is then noticed. -errno if there is no room. */
int stat_snapshot_add(struct stat_snapshot *list, const char *path, bool follow);

bool stat_snapshot_is_current(const struct stat_snapshot *list);
void stat_snapshot_release(struct stat_snapshot *list);
