/* A zip archive of a workspace's artifacts, made while it is sent (api/zip_format.h). Hostile code may change the files
 * meanwhile: each entry has its size behind its data, so the archive is valid in any case. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct artifact_list;
struct zip;

/* Of these files, below the workspace. Takes the descriptor and the list, in any case. NULL: out of memory. */
struct zip *zip_open(int workspace_fd, struct artifact_list *list);
void zip_close(struct zip *zip);

/* Makes the next bytes, at most `room`, which is ZIP_FORMAT_UNIT_MAX or more; 0 at the end, or -errno. A file that is
 * gone, or is no regular file any more, is left out. */
ssize_t zip_read(struct zip *zip, char *bytes, size_t room);
