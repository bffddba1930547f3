/* The init of a container whose first process is `glovebox serve`. */
#pragma once

/* Called as process 1: returns in a child, which is the daemon. This process stays above it: it reaps what the
 * daemon's helpers leave, passes SIGTERM and SIGINT on, starts a daemon that crashed again (the new one takes over the
 * sessions), restarts it on SIGHUP, and ends with the daemon's exit status. */
void serve_init(void);
