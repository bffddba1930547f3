/* The way to the proxy out of a box whose runtime has a network stack of its own (gVisor): a socket of that stack
 * cannot be handed to the host, so a process in the box listens, and connects to a socket that the host listens on. */
#pragma once

#include <stdint.h>

/* A listening socket on this port of the loopback interface, where nothing else listens yet; or -errno. */
int relay_listen(uint16_t port);

/* Listens there and starts the process, which keeps no other descriptor. It runs under the
 * same restrictions as its caller. Returns 0 or -errno. */
int relay_start(uint16_t port);
