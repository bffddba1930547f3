/* Finds Glovebox's private directories (base/private_dir.h), of any user, around a directory to be mounted. */
#pragma once

#include <limits.h>
#include <stdbool.h>

enum policy_private { POLICY_PRIVATE_NONE, POLICY_PRIVATE_AROUND, POLICY_PRIVATE_BELOW };

/* Around: the source lies in such a directory, seen from where it is mounted or from its own file system (a bind mount
 * does not hide it). Below: the source contains one, or a mount of what lies in one; the search for those is bounded in
 * depth and in entries, and left out without `search`. ret_path says where. */
enum policy_private policy_find_private(int source_fd, const char *source_path, bool search,
                                        char ret_path[static PATH_MAX]);

/* Calls back with the path of each socket that a Glovebox daemon listens on in this network namespace, as long as the
 * callback answers 0; returns its last answer. */
int policy_each_socket(int (*visit)(void *context, const char *path), void *context);
