/* The template: the part of the file system that all boxes of one image share (the image's trees, /etc, the nodes of
 * /dev, places to mount on), built once by a supervisor and copied, mounts and not files, for each box. A box adds its
 * own parts: /proc, /dev/pts, writable directories.
 *
 * Its files are shared by all boxes that were made from it, as the image's own are. They are read-only: mounts and file
 * systems are read-only, and belong to a user namespace above the boxes'. */
#pragma once

#include "box/seal/stage.h"

/* Builds it in the caller's mount namespace, in place of an older one: boxes that have copies keep them. Takes the
 * trees and devices of `fds`. The next boxes that the caller clones with spec.from_template are made from it; they have
 * the same image, as many processors, no code, and nothing mounted at places of the caller's choice. */
int rootfs_template_make(const struct box_spec *spec, const struct stage_fds *fds, struct err *err);

/* A detached copy of it, for one box; or -errno. Call it in the process and mount namespace that built it. */
int rootfs_template_copy(void);
