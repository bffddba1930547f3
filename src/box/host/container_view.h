/* The mounts of a container as a box needs them.
 *
 * Engines cover parts of a container's /proc, and then Linux refuses a new /proc to every user namespace in it; they
 * mount the control groups read-only. A process with CAP_SYS_ADMIN in the container can undo both for itself, in a
 * mount namespace of its own: nothing changes for the container's other processes and the engine. So a container that
 * makes boxes needs that capability and not --privileged. */
#pragma once

#include <stdbool.h>

/* In a container: uncovers /proc and makes the control groups writable, for this process and its children. Elsewhere,
 * and if nothing is covered, it does nothing. If the container forbids a change, the steps of the box report it later.
 * Needs CAP_SYS_ADMIN; call it while single-threaded. */
void container_view_open(void);

/* True if something is mounted over parts of /proc. */
bool container_view_has_covers(void);
