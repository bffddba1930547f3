/* Starting the daemon for a client that needs one. */
#pragma once

#include "base/err.h"
#include "client/socket_place.h"

/* Runs `glovebox serve --background` for this place and returns when a daemon answers there: the one that was started,
 * or one that another process started meanwhile. The error is the daemon's message. */
int daemon_start(const struct socket_place *place, struct err *err);
