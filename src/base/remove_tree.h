/* Removing a directory that hostile code filled: by descriptor, through no link, over no mount. */
#pragma once

#include <stdbool.h>

/* Removes it and everything below. What cannot be removed stays; a missing one is fine. */
void remove_tree(const char *path);
void remove_tree_at(int parent_fd, const char *name);

/* The same in pieces: looks at no more than `budget` entries. False: there may be more, and it is worth while to
 * call again. True: it is gone, or what is left cannot be removed. */
bool remove_tree_some(int parent_fd, const char *name, unsigned budget);

/* Only what is below it. */
void empty_tree(const char *path);
