/* Who is at the other end of a UNIX socket. */
#pragma once

#include <stdbool.h>

/* Is it a process in a box? Glovebox's sockets are never mounted in a box; if one is, it still refuses connections
 * there. A peer that has ended counts as one: its socket may have been inherited. */
bool peer_is_in_box(int socket_fd);
