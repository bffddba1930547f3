/* The one way into a directory that code in a box writes to: a workspace, the kernel's own files, what pip left.
 *
 * Code in a box chooses these files, and can change them at any moment. No link is followed, not on the way either;
 * nothing outside of the directory is looked at, so that no answer depends on a file of the host; a pipe, a socket or a
 * device is not opened for longer than it takes to see that it is one, and nothing waits for it. (workspace.c, for
 * people who name their own files, follows links as long as they stay in the workspace.) */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Opens a regular file below dir_fd with these flags (O_RDONLY, O_WRONLY | O_CREAT | O_EXCL, …). Returns it or -errno:
 * -ELOOP for a link, -ENXIO for what is not a regular file. ret_status may be NULL. */
int tenant_file_open(int dir_fd, const char *path, unsigned flags, struct stat *ret_status);

/* Opens a directory below dir_fd; flags is O_RDONLY or O_PATH. */
int tenant_file_open_directory(int dir_fd, const char *path, unsigned flags);

/* Is there a regular file of this name in the directory? `directory` is a path of our own. */
bool tenant_file_exists(const char *directory, const char *name);

/* Renames or removes a file in the directory; what is not there, or cannot be removed, is left. */
void tenant_file_rename(const char *directory, const char *name, const char *new_name);
void tenant_file_remove(const char *directory, const char *name);
