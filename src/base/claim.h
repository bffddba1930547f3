/* A claim: a name that is reserved while a process exists. A process to which the daemon handed a box claims the box's
 * control groups, so that a daemon that finds them at its start does not remove them. It is an address in the abstract
 * namespace of UNIX sockets: nothing has to be removed afterwards. */
#pragma once

#include <stdbool.h>

/* A descriptor that holds it, or -errno. */
int claim_make(const char *name);
bool claim_is_held(const char *name);
