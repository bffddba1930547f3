/* The other end of instance_link.h, in an instance: `glovebox stdio-channel SOCKET [start]` connects its standard input
 * and output with the daemon at that socket, which it starts if told to. The first line it says is
 * STDIO_CHANNEL_GREETING; the messages of docs/PROTOCOL.md follow. */
#pragma once

#define STDIO_CHANNEL_ARGUMENT "stdio-channel"
#define STDIO_CHANNEL_GREETING "glovebox channel 1\n"

/* Call it first in main(): in such a process it never returns. */
void stdio_channel_serve_if_asked(int argc, char **argv);
