/* A daemon in the background: this process forks a child that leaves the terminal, the session and the current
 * directory, writes to <data>/daemon.log, and becomes the daemon. A pipe reports that it serves, or why not (an err).
 * If another daemon starts at the same time and is quicker, this process waits until that one answers. */
#pragma once

#include "api/service.h"
#include "base/err.h"
#include "session/serve_options.h"

/* Returns when a daemon answers at the socket, and prints the address of its API. */
int serve_in_background(struct serve_options *options, const struct service_settings *service, struct err *err);
