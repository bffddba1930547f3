/* A claim: a name that is held while a process exists. A process that has a box that was handed over
 * claims its control groups, so that a daemon that finds them at its start leaves them alone. It is an address in the
 * abstract namespace of UNIX sockets: nothing has to be removed afterwards. */
#pragma once

#include <stdbool.h>

/* A descriptor that holds it, or -errno. */
int claim_make(const char *name);
bool claim_is_held(const char *name);
