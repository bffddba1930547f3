/* The init of a container whose first process is `glovebox serve`. */
#pragma once

/* Called as process 1: returns in a child, which is the daemon. This process stays: it reaps orphans, passes SIGTERM
 * and SIGINT on, starts another daemon after a crash (which takes over the sessions), restarts it on SIGHUP, and exits
 * with the daemon's exit status. */
void serve_init(void);
