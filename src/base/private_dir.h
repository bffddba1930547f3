/* Directories that are Glovebox's own: data directories and those with its sockets. Each has a marker file, so that any
 * other Glovebox on the host recognises it, of any user: it mounts no such directory, what is in it, or a
 * directory that contains it (box/policy.h). */
#pragma once

#include <stdbool.h>

#define PRIVATE_DIR_MARKER ".glovebox-private"

/* Puts the marker there, unless it is there already. Returns 0 or -errno. */
int private_dir_mark(int dir_fd);

bool private_dir_is_marked(int dir_fd);

/* True if this is the name of a socket that a Glovebox daemon listens on. */
bool private_dir_is_socket_name(const char *name);
