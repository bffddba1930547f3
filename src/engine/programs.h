/* Where a box of another engine finds our programs, and its socket to the host. Shared with guest/entry. */
#pragma once

#define ENGINE_PROGRAMS "/opt/glovebox/engine" /* read-only: `entry` and `agent` */
#define ENGINE_SOCKET "/run/glovebox/socket"
#define ENGINE_SOCKET_DIR "/run/glovebox"
