/* Detached mount trees: a directory, file or new tmpfs as a descriptor that is attached in a box later. All return the
 * descriptor or -errno. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* A private view of what `fd` (O_PATH is enough) names, with everything mounted below it: no setuid, no devices, and
 * read-only unless writable. */
int tree_clone(int fd, bool writable);

/* A view in which files of the source's owner are the box's own: id-mapped when the box has an id of its own
 * (`leased`), plain when it shares the maker's. A file system without id-mapped mounts can still be shown for reading
 * what all may read; writable, it is refused with -EINVAL or -EPERM. */
int tree_clone_owned(int fd, bool writable, bool leased, uid_t box_uid, gid_t box_gid);

/* The same for a box whose files a server outside of it handles as root (gVisor's gofer): it makes a file as root and
 * gives it to the box's user then. */
int tree_clone_served(int fd, bool writable, uid_t box_uid, gid_t box_gid);

/* The same for a box with users: files of its other users belong on disk to disk_id + their id in the box. Only for
 * directories of Glovebox's own. */
int tree_clone_for_users(int fd, uid_t box_uid, gid_t box_gid, uid_t disk_id);

/* Fills err with the reason for -code of tree_clone_owned, and what to do. Returns -1. */
int tree_explain(int code, const char *source, struct err *err);

/* A device node of the host, checked to be the character device that it should be. */
int tree_clone_device(const char *path, unsigned major_number, unsigned minor_number);

/* An empty directory that cannot be written to. */
int tree_make_empty(uid_t uid, gid_t gid);

/* A directory with one file that holds these bytes; neither can be written to. */
int tree_make_with_file(const char *name, const void *bytes, size_t size, uid_t uid, gid_t gid);

/* A tmpfs that is bounded in bytes and in files, owned by uid/gid. */
int tree_make_tmpfs(uint64_t bytes, uint64_t files, uid_t uid, gid_t gid, unsigned mode);
