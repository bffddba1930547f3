/* A daemon in the background: this process forks one that leaves the terminal, the session and the current directory,
 * writes to <data>/daemon.log, and becomes the daemon. A pipe carries the outcome: it serves, or why not (an
 * err). If another daemon was quicker, that is as good: then we wait until that one answers. */
#pragma once

#include "api/service.h"
#include "base/err.h"
#include "session/serve_options.h"

/* Returns when a daemon answers at the socket, and says where its API is. */
int serve_in_background(struct serve_options *options, const struct service_settings *service, struct err *err);
