/* The mounts of the host, from /proc/self/mountinfo. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* Another path of the same file or directory, by a mount that shows more of the file system above it: that of a bind
 * mount's origin. -ENOENT: there is none. */
int policy_mount_origin(const char *path, char ret_origin[static PATH_MAX]);

/* True if the function returns true for any mount point. */
bool policy_mount_any(bool (*is_so)(void *context, const char *mount_point), void *context);
