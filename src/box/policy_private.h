/* Finds Glovebox's private directories (base/private_dir.h), of any user, around a directory to be mounted. */
#pragma once

#include <limits.h>
#include <stdbool.h>

enum policy_private { POLICY_PRIVATE_NONE, POLICY_PRIVATE_AROUND, POLICY_PRIVATE_BELOW };

/* "Around" means that the source lies in such a directory, by its path or by its place in its own file system (a bind
 * mount does not hide it). "Below" means that the source contains one, or a mount of something in one; that search is
 * bounded in depth and in entries, and done only with `search`. ret_path is the directory found. */
enum policy_private policy_find_private(int source_fd, const char *source_path, bool search,
                                        char ret_path[static PATH_MAX]);

/* Calls back with the path of each socket that a Glovebox daemon listens on in this network namespace, as long as the
 * callback answers 0; returns its last answer. */
int policy_each_socket(int (*visit)(void *context, const char *path), void *context);
