/* Looking at a pipe without taking anything. The daemon reads what boxes write from pipes only: a socket of the UNIX
 * domain also carries descriptors, and its reader must close those that it did not ask for, which can take as long as
 * the sender likes (SO_LINGER). A pipe carries bytes only. */
#pragma once

#include <stddef.h>

/* How many bytes are in the pipe now; 0 also when that cannot be said. */
size_t pipe_waiting(int pipe_fd);
