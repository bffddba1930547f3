/* Listening UNIX sockets that only their owner and root can connect to. */
#pragma once

#include <sys/un.h>

#include "base/err.h"

/* A listening socket of this type (SOCK_STREAM, SOCK_SEQPACKET, with flags) whose file has mode 0600 from the start.
 * Returns -errno on failure. */
int unix_listener_bind(const struct sockaddr_un *address, int type, int backlog);

/* A non-blocking stream listener at this path, whose connections refuse descriptors. It replaces the socket of a killed
 * process, never one that a process listens on, and no other file. `option` is how the user changes the path; errors
 * name it. Returns -1 on failure. */
int unix_listener_open(const char *path, const char *option, int backlog, struct err *err);
