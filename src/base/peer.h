/* Who is at the other end of a UNIX socket. */
#pragma once

#include <stdbool.h>

/* Is it a process in a box? Sockets of ours are never shown to a box; should one be, it still answers nobody in there.
 * A peer that has ended counts as one: its socket may have been inherited. */
bool peer_is_in_box(int socket_fd);
