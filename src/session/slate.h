/* The slate: the newest records of journals, in memory that outlives the daemon, until there is time for their files.
 *
 * A write to a file takes a few microseconds, and after a pause, when the processor has forgotten the file system, some
 * twenty: more than all else that a daemon does for a short run. So a record first goes here, where writing is a copy,
 * and to its file a moment later. The memory is a file without a name; the vault holds it too, and the daemon that
 * comes after one that was killed finishes what is on it before it opens any journal. So what is here survives the
 * death of the daemon; what is in a file, also that of the vault.
 *
 * One slate per process, as there is one daemon. Where it cannot be had, or is full, records go to their files. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"

#define SLATE_NAME ".slate" /* of the vault's entry */

struct slate_place;

/* A new one, empty. The descriptor is the caller's: for the vault, and then to be closed. */
int slate_make(struct loop *loop, int *ret_fd, struct err *err);

/* What another daemon left, by its descriptor (borrowed): all of it goes to the files, and the slate is used further.
 * ERR_PROTOCOL: it is none. */
int slate_take_over(struct loop *loop, int fd, struct err *err);

void slate_close(void);

/* Room for `size` bytes that belong at this offset of the file, behind those that are there already. *place is where
 * the file's bytes are, NULL before the first ones and whenever they have gone to the file: it must stay where it is
 * until then. NULL: there is no room, now. */
void *slate_room(struct slate_place **place, const char *path, int fd, uint64_t offset, size_t size);

/* The bytes are in their room: from now on they count. */
void slate_add(struct slate_place *place, size_t size);

/* To the file, and off the slate; *place becomes NULL. When it fails all stays as it is. Returns 0 or -errno. */
int slate_write(struct slate_place **place);

/* Off the slate, written or not. */
void slate_forget(struct slate_place **place);
