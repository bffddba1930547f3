/* Access to files in a directory that code in a box writes to: a workspace, the kernel's own files, the output of pip.
 *
 * Code in a box chooses these files, and can change them at any moment. No link is followed anywhere in a path, and
 * nothing outside of the directory is read, so no result depends on a file of the host. A pipe, a socket or a device is
 * closed as soon as it is recognised, and opening it never blocks. (workspace.c, for people who name their own files,
 * follows links as long as they stay in the workspace.) */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

/* Opens a regular file below dir_fd with these flags (O_RDONLY, O_WRONLY | O_CREAT | O_EXCL, …). Returns it or -errno:
 * -ELOOP for a link, -ENXIO for what is not a regular file. ret_status may be NULL. */
int tenant_file_open(int dir_fd, const char *path, unsigned flags, struct stat *ret_status);

/* Opens a directory below dir_fd; flags is O_RDONLY or O_PATH. */
int tenant_file_open_directory(int dir_fd, const char *path, unsigned flags);

/* True if the directory has a regular file of this name, or if that cannot be found out: who would take it for missing
 * would forget what is in it. Needs no descriptor. `directory` is a path that Glovebox chose. */
bool tenant_file_exists(const char *directory, const char *name);

/* Renames or removes a file in the directory; a missing file, or a failure, is ignored. */
void tenant_file_rename(const char *directory, const char *name, const char *new_name);
void tenant_file_remove(const char *directory, const char *name);
