/* The process at the other end of a UNIX socket. */
#pragma once

#include <stdbool.h>

/* True if the peer is a process in a box. Glovebox's sockets are never mounted in a box; this check is a second line of
 * defence. A peer that has ended counts as one, because another process may have inherited its socket. */
bool peer_is_in_box(int socket_fd);
