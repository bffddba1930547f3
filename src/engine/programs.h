/* Where a box of another engine finds our programs, and its socket to the host. Shared with guest/entry. */
#pragma once

#define ENGINE_PROGRAMS "/opt/glovebox/engine" /* read-only: `entry`, `agent`, `commands` */
#define ENGINE_SOCKET "/run/glovebox/socket"
#define ENGINE_SOCKET_DIR "/run/glovebox"
#define ENGINE_PROXY_NAME "proxy" /* beside the socket, where the box has a relay: the proxy accepts on it */
#define ENGINE_PROXY ENGINE_SOCKET_DIR "/" ENGINE_PROXY_NAME

/* Letters of the entry's fifth argument. */
#define ENTRY_UNBOUNDED "u"       /* the engine bounds neither memory nor processes */
#define ENTRY_HANDS_WORKSPACE "w" /* hand out /workspace */

#define ENGINE_ARGUMENTS_NAME "arguments" /* beside the socket: texts, each followed by NUL */
#define ENGINE_ARGUMENTS ENGINE_SOCKET_DIR "/" ENGINE_ARGUMENTS_NAME
