/* Settings of engines that are environment variables only, with the names that other programs use, and a warning for
 * those that have no effect. */
#pragma once

#include "base/err.h"
#include "engine/engine.h"

/* Fills sockets that were not given with what the engines' own clients use: DOCKER_HOST, CONTAINER_HOST, and podman's
 * socket of an ordinary user. */
void engine_variables_find_sockets(struct engine_settings *settings);

/* Fills the settings from the variables. Texts are borrowed from the environment. */
int engine_variables_read(struct engine_settings *settings, struct err *err);

/* One line in the log for each variable whose engine is neither the daemon's own (`chosen`) nor there. */
void engine_variables_warn(const struct engine_settings *settings, const char *chosen);
