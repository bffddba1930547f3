/* A zip archive that is made while it is sent (APPNOTE 6.3): only its table of contents is in memory. Hostile code may
 * change the files meanwhile: each entry has its size behind its data, so the archive is valid in any case. Nothing is
 * compressed, to keep the service responsive; the data are in stored blocks of deflate, in which readers that cannot
 * seek find the end. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct artifact_list;
struct zip;

enum { ZIP_UNIT_MAX = 66 << 10 }; /* the most that is made at once */

/* Of these files, below the workspace. Takes the descriptor and the list, in any case. NULL: out of memory. */
struct zip *zip_open(int workspace_fd, struct artifact_list *list);
void zip_close(struct zip *zip);

/* Makes the next bytes, at most `room`, which is ZIP_UNIT_MAX or more; 0 at the end, or -errno. A file that is gone, or
 * is no regular file any more, is left out. */
ssize_t zip_read(struct zip *zip, char *bytes, size_t room);
