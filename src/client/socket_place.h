/* Where the daemon's socket is: one rule for the daemon and for its clients.
 *
 * A project is a workspace of boxes, and what lies in a workspace is the box's to use and to replace. So the socket of
 * a project, DIR/.sandbox/kernel.sock, is a symbolic link, and leads nowhere inside of a box. The socket itself lies in
 * a directory of this user's (runtime_dirs), under a name that follows from DIR: we never read the link.
 *
 *   1. --socket PATH
 *   2. --socket-dir DIR: DIR/kernel.sock (for projects on file systems without UNIX sockets)
 *   3. --project DIR: DIR/.sandbox/kernel.sock
 *   4. $GLOVEBOX_SOCKET
 *   5. that of the nearest directory from here upwards that has a daemon of this user's (clients only)
 *   6. a data directory of one's own ($GLOVEBOX_DATA_DIR, $SANDBOX_DATA_DIR) has a daemon of its own: glovebox.sock in
 *     it
 *   7. /run/glovebox/glovebox.sock for root, $XDG_RUNTIME_DIR/glovebox/glovebox.sock or
 *     /tmp/glovebox-<uid>/glovebox.sock for a user */
#pragma once

#include <stdbool.h>

#include "base/data_dir.h"
#include "base/err.h"

enum { SOCKET_PATH_MAX = 108 }; /* sun_path, with its NUL */

/* From the command line; NULL: not given. */
struct socket_choice {
        const char *socket, *socket_dir, *project;
};

struct socket_place {
        bool in_runtime_dir; /* the socket lies in one of runtime_dirs */
        char path[DATA_DIR_PATH_MAX];    /* absolute, as people know it */
        char address[SOCKET_PATH_MAX]; /* where the socket is: the same, unless `path` is a link in a project */
        char project[DATA_DIR_PATH_MAX]; /* the project's directory, absolute and resolved, or "" */
};

/* Only chooses: nothing needs to exist except the project's directory. ERR_USAGE: the path is too long. */
int socket_place_choose(const struct socket_choice *choice, bool search_upwards, struct socket_place *ret_place,
                        struct err *err);
