/* Witnesses: the places that opening an image looked at, and what was there. As long as all of them are what they were,
 * opening it again would bring the same, and whoever makes many boxes need not do it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct stat_snapshot_entry {
        char *path;
        bool follow;   /* what a symbolic link leads to, not the link */
        bool is_there; /* else the rest is 0 */
        dev_t device;
        ino_t inode;
        mode_t mode;
        struct timespec changed;
};

enum { WITNESSES_MAX = 48 };

/* All zeroes is an empty list. */
struct stat_snapshot {
        struct stat_snapshot_entry witnesses[WITNESSES_MAX];
        size_t n;
};

/* To be called before the image is opened: a change in between is seen afterwards. -errno when there is no room. */
int stat_snapshot_add(struct stat_snapshot *list, const char *path, bool follow);

/* All that image_open looks at for the host image, as long as its interpreter is the system's own. */
int stat_snapshot_host(struct stat_snapshot *list, const char *data_dir);

bool stat_snapshot_all_hold(const struct stat_snapshot *list);
void stat_snapshot_release(struct stat_snapshot *list);
