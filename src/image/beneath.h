/* Opening below a directory, so that nothing in there leads out (openat2, Linux 5.6). */
#pragma once

#include <sys/types.h>

/* No symbolic link is followed anywhere in `path` (-ELOOP); "" is the directory itself. Returns a descriptor or
 * -errno. */
int beneath_open(int dir_fd, const char *path, int flags);

/* Links are followed as a process would whose root is `root_fd`: absolute targets and ".." stay inside. */
int beneath_open_as_root(int root_fd, const char *path, int flags);

/* Creates the directories of `path` that are missing (0755), follows no link, and returns the last one open for
 * reading (O_RDONLY | O_DIRECTORY), or -errno. */
int beneath_make_directories(int dir_fd, const char *path);
