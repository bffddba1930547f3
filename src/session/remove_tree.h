/* Removing a directory that hostile code filled: by descriptor, through no link, over no mount. */
#pragma once

/* Removes it and everything below. What cannot be removed stays; a missing one is fine. */
void remove_tree(const char *path);
void remove_tree_at(int parent_fd, const char *name);

/* Only what is below it. */
void empty_tree(const char *path);
