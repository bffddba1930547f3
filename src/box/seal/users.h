/* A box with users (spec.users): the differences of its sealing.
 *
 * Ids 0 to 65535 exist in it, and its root may switch between them and manage their files. On the host they are ids
 * that no other box and no user has, so root of the box has no rights outside. Root has the rights of a box with one
 * user, six capabilities in the namespace of the box, which owns neither mounts nor a network, and a private layer that
 * it may write to. */
#pragma once

#include "base/err.h"
#include "box/seal/stage.h"

enum { USERS_PLACES_MAX = 8 };

/* Absolute paths of what root may write to beside the writable places of every box; returns how many there are. */
size_t users_places(const char *ret_places[static USERS_PLACES_MAX]);

/* Makes them: directories of the box's own root, which stay writable when that is closed. Those that the image has are
 * left as they are, and can be read only. */
int users_make_writable(const struct stage *stage);

/* Copies the image's /etc into the box's, without the files that a box without users may not read either. */
int users_copy_etc(int image_etc_fd, int etc_fd);

/* The files about users; in an imported image its own users are in them too. */
int users_write_etc(int etc_fd);
bool users_has_etc_file(const char *name);

/* The second user namespace (stage.c has the reasons), with all ids. A process cannot map more than its own id, so a
 * child that stays in the first one does that. */
int users_lock(struct stage *stage, struct err *err);
