/* Where the daemon's socket is: one rule for the daemon and for everybody who looks for it.
 *
 *   1. --socket PATH
 *   2. --socket-dir DIR: DIR/kernel.sock (for projects on file systems without UNIX sockets)
 *   3. --project DIR: DIR/.sandbox/kernel.sock
 *   4. $GLOVEBOX_SOCKET
 *   5. the nearest directory from here upwards that has a .sandbox/kernel.sock of this user's (clients only)
 *   6. a data directory of one's own ($GLOVEBOX_DATA_DIR, $SANDBOX_DATA_DIR) has a daemon of its own: glovebox.sock in
 * it
 *   7. /run/glovebox/glovebox.sock for root, $XDG_RUNTIME_DIR/glovebox/glovebox.sock or
 *      /tmp/glovebox-<uid>/glovebox.sock for a user */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/place.h"

enum { SOCKET_PATH_MAX = 108 }; /* sun_path, with its NUL */

/* What the command line said; NULL where it said nothing. */
struct socket_choice {
        const char *socket, *socket_dir, *project;
};

struct socket_place {
        char path[SOCKET_PATH_MAX];   /* absolute */
        char project[PLACE_PATH_MAX]; /* the project's directory, absolute and resolved, or "" */
};

/* Only chooses: nothing needs to exist but the project's directory. Too long a path is ERR_USAGE and says what to do.
 */
int socket_place_choose(const struct socket_choice *choice, bool search_upwards, struct socket_place *ret_place,
                        struct err *err);
