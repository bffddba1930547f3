/* The other end of instance_link.h, in an instance: `glovebox stdio-channel SOCKET [start]` connects its standard input
 * and output with the daemon at that socket. With `start` it starts a daemon if none answers. It writes the line
 * STDIO_CHANNEL_GREETING first; the messages of docs/PROTOCOL.md follow. */
#pragma once

#define STDIO_CHANNEL_ARGUMENT "stdio-channel"
#define STDIO_CHANNEL_GREETING "glovebox channel 1\n"

/* Call it first in main(): with these arguments it never returns. */
void stdio_channel_serve_if_asked(int argc, char **argv);
