/* The place of a file on the host: path, identity and the directories above. The mount policy decides by it. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct policy_place {
        unsigned dev_major, dev_minor;
        uint64_t inode;
        uint64_t mount; /* not part of the identity: distinguishes the root from a bind mount of a directory below it */
        mode_t mode;
};

bool policy_place_is_same(const struct policy_place *a, const struct policy_place *b);

/* Resolves a path, following links. Returns 0 or -errno. */
int policy_place_find(const char *path, struct policy_place *ret_place);

/* True if the path leads to the directory `upper` or to something below it. */
bool policy_place_is_within(const char *path, const struct policy_place *upper);

/* From a directory up to the root, by "..": one statx for each level. */
struct policy_climb {
        int dir_fd;
        char path[PATH_MAX]; /* of the directory that was reached, relative to dir_fd */
        struct policy_place at;
};

/* Begins at a directory: an open one and ".", or AT_FDCWD and a path. Returns 0 or -errno. */
int policy_climb_begin(struct policy_climb *climb, int dir_fd, const char *path);

/* 1: one level up; 0: this was the root; -errno. */
int policy_climb_up(struct policy_climb *climb);

/* Deeper than a climb gets. */
enum { POLICY_CHAIN_MAX = PATH_MAX / 3 + 2 };

/* One host path: the name that the kernel has for it, itself and every directory above it. */
struct policy_where {
        char path[PATH_MAX];
        struct policy_place chain[POLICY_CHAIN_MAX];
        size_t n_chain;
};

/* -ESTALE: the path of the open file leads to another file now. */
int policy_where_find(int fd, struct policy_where *ret_where);

/* True if this place is the one that was found, or a directory above it. */
bool policy_where_has(const struct policy_where *where, const struct policy_place *place);
