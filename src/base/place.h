/* Where Glovebox keeps what it owns. */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum { PLACE_PATH_MAX = 4096 };

/* The data directory, absolute and resolved: $GLOVEBOX_DATA_DIR, $SANDBOX_DATA_DIR, /var/lib/glovebox for root, else
 * $XDG_DATA_HOME/glovebox or ~/.local/share/glovebox. It is made (0700) when missing; one that belongs to somebody
 * else, or that others may write to, is refused. Ask before entering a user namespace: in there everybody is root. */
int place_data_dir(char ret_path[static PLACE_PATH_MAX], struct err *err);

/* Marks it (base/private_dir.h). Before anything is put there: an empty one is nobody's secret. */
int place_mark_data_dir(const char *path, struct err *err);

/* As place_data_dir, for whoever only looks: nothing is made, and ERR_NOT_FOUND says that the directory is not there yet. */
int place_find_data_dir(char ret_path[static PLACE_PATH_MAX], struct err *err);

/* Another data directory of this user's, whose images count where the own one lacks them: the usual one, or the one that
 * $GLOVEBOX_SHARED_DATA_DIR names ("none": none). "" when there is none, or it is the data directory itself, belongs to
 * somebody else, or may be written to by others. As it was when one of the two above was called. */
const char *place_shared_data_dir(void);

/* Where sockets are: short-lived directories that are this user's alone, best one first. Returns how many there are. */
enum { PLACE_RUNTIME_DIRS = 3, PLACE_RUNTIME_MAX = 72 };
size_t place_runtime_dirs(char ret_paths[static PLACE_RUNTIME_DIRS][PLACE_RUNTIME_MAX]);

/* Makes one of them (0700) and marks it (base/private_dir.h); ERR_REFUSED if it is somebody else's. */
int place_make_runtime_dir(const char *path, struct err *err);
