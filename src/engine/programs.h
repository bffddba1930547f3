/* Paths of our programs, and of the socket to the host, in a box of another engine. Shared with guest/entry. */
#pragma once

#define ENGINE_PROGRAMS "/opt/glovebox/engine" /* read-only: `entry`, `agent`, `commands` */
#define ENGINE_SOCKET "/run/glovebox/socket"
#define ENGINE_SOCKET_DIR "/run/glovebox"
#define ENGINE_PROXY_NAME "proxy" /* beside the socket, if the box has a relay: the proxy accepts on it */
#define ENGINE_PROXY ENGINE_SOCKET_DIR "/" ENGINE_PROXY_NAME

/* Letters of the entry's fifth argument. */
#define ENTRY_UNBOUNDED "u"       /* the engine bounds neither memory nor processes */
#define ENTRY_SENDS_WORKSPACE "w" /* send a descriptor of /workspace to the host */

#define ENGINE_ARGUMENTS_NAME "arguments" /* beside the socket: texts, each followed by NUL */
#define ENGINE_ARGUMENTS ENGINE_SOCKET_DIR "/" ENGINE_ARGUMENTS_NAME
