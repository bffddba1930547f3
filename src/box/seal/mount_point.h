/* Mount points below the root of a box while it is being built. No link is ever followed. Everything here
 * returns -errno on failure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Makes the directory and its parents; returns it (O_PATH). */
int mount_point_make_directory(int root_fd, const char *path);

/* A new file with these contents; its parents are made. */
int mount_point_write_in(int parent_fd, const char *name, const void *bytes, size_t size);
int mount_point_write(int root_fd, const char *path, const void *bytes, size_t size);

/* Attaches a detached tree to what `target_fd` (O_PATH) is. */
int mount_point_put(int tree_fd, int target_fd);

/* Attaches a tree at a path, making the mount point (a directory or an empty file) where there is none. */
int mount_point_attach(int root_fd, int tree_fd, const char *path, bool is_directory);
