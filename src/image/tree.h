/* Whole directory trees, by descriptor; symbolic links are never followed. */
#pragma once

#include <stdint.h>

/* Removes `name` below dir_fd, whatever it is. Missing is fine. Returns 0 or -errno. */
int tree_remove(int dir_fd, const char *name);

/* Removes everything below dir_fd, which stays. */
int tree_empty(int dir_fd);

/* Adds up what files below `name` hold, hard links once each. */
int tree_measure(int dir_fd, const char *name, uint64_t *bytes, uint64_t *entries);
