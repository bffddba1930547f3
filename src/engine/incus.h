/* Engines that are called through the `incus` client: system containers and virtual machines. */
#pragma once

#include "engine/engine.h"

extern const struct engine engine_incus, engine_incus_vm;

/* The socket of the server on this host; "": another server is set (INCUS_REMOTE). */
const char *incus_socket(const struct engine_settings *settings);

/* True if the server is on another host. The first call runs the client and blocks for a moment: the daemon makes it at
 * its start. Later calls return the same answer. */
bool incus_is_on_other_host(const struct engine_settings *settings);
