/* Which process gets a processor first when there are too few. The daemon, which answers all clients, comes before its
 * boxes and helpers; background work comes last. Only root may raise a priority; what the kernel refuses stays as it
 * is. */
#pragma once

#include <stdbool.h>

/* For the daemon itself: a better nice value, and a better place for its scheduling group. Neither is inherited by its
 * children. */
void priority_serve_first(void);

/* Clients and kernels wake the daemon when they are about to wait themselves. Pushed aside in that moment, as some
 * schedulers do, they still run when the daemon wakes the next one, which then starts on another processor with cold
 * caches: a run takes twice as long (bench/profile.md). SCHED_BATCH lets them finish, and suits a machine that has
 * processors to spare. Where processes compete for processors (`busy`), the daemon would wait for the end of another
 * process' time slice, and takes the processor at once instead. Cheap when nothing changes. */
void priority_adapt(bool is_busy);

/* For requests from a network, whose clients are not about to wait: from now on as if it were always busy. */
void priority_stay_alert(void);

/* For a child that works in the background. It leaves the daemon's scheduling group (autogroup), so that it does not
 * use up the daemon's share of a processor. */
void priority_stand_apart(void);
void priority_stand_back(void); /* and comes after all others */
