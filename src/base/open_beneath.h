/* Opening files below a directory, so that no link leads out of it (openat2, Linux 5.6). */
#pragma once

/* No symbolic link is followed anywhere in `path` (-ELOOP); "" is the directory itself. Returns a descriptor or
 * -errno. */
int open_beneath(int dir_fd, const char *path, int flags);

/* Links are followed as a process would whose root is `root_fd`: absolute targets and ".." stay inside. */
int open_beneath_as_root(int root_fd, const char *path, int flags);

/* Creates the directories of `path` that are missing (0755), follows no link, and returns the last one open for
 * reading (O_RDONLY | O_DIRECTORY), or -errno. */
int make_directories_beneath(int dir_fd, const char *path);
