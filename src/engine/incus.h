/* Engines that are reached through the `incus` client: system containers and virtual machines. */
#pragma once

#include "engine/engine.h"

extern const struct engine engine_incus, engine_incus_vm;

/* The socket of the server on this host, or "" where another one is set (INCUS_REMOTE). */
const char *incus_socket(const struct engine_settings *settings);

/* Is the server on another host? The daemon asks once, at its start, which takes a moment; then it is known. */
bool incus_is_far(const struct engine_settings *settings);
