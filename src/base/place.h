/* Where Glovebox keeps what it owns. */
#pragma once

#include "base/err.h"

enum { PLACE_PATH_MAX = 4096 };

/* The data directory, absolute and resolved: $GLOVEBOX_DATA_DIR, $SANDBOX_DATA_DIR, /var/lib/glovebox for root, else
 * $XDG_DATA_HOME/glovebox or ~/.local/share/glovebox. It is made (0700) when missing; one that belongs to somebody
 * else, or that others may write to, is refused. Ask before entering a user namespace: in there everybody is root. */
int place_data_dir(char ret_path[static PLACE_PATH_MAX], struct err *err);

/* The same for whoever only looks: nothing is made, and ERR_NOT_FOUND says that the directory is not there yet. */
int place_find_data_dir(char ret_path[static PLACE_PATH_MAX], struct err *err);
