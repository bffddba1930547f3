/* Removing a directory that hostile code filled: by descriptor, through no link, over no mount. */
#pragma once

#include <stdbool.h>

/* Removes the directory and everything below. What cannot be removed stays; a missing one is fine. */
void remove_tree(const char *path);

/* The same for an entry of any kind. Returns 0 or -errno. */
int remove_tree_at(int parent_fd, const char *name);

/* Removes everything below an open directory, and does not change its mode. Returns 0 or -errno. */
int remove_tree_contents(int dir_fd);

/* The same in pieces: looks at no more than `budget` entries. False: there may be more, and it is worth while to
 * call again. True: it is gone, or what is left cannot be removed. */
bool remove_tree_some(int parent_fd, const char *name, unsigned budget);

/* Removes only what is below it. */
void empty_tree(const char *path);
