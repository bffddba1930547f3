/* The number of bytes in a pipe, without reading them. The daemon reads the output of boxes from pipes only: a UNIX
 * socket also carries descriptors, and its reader must close unwanted ones, which can take as long as the sender chose
 * (SO_LINGER). A pipe carries bytes only. */
#pragma once

#include <stddef.h>

/* The number of bytes in the pipe now; 0 also if it is unknown. */
size_t pipe_waiting(int pipe_fd);
