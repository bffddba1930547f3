/* Scheduling priorities. The daemon, which answers all clients, has priority over its boxes and helpers; background
 * work has the lowest priority. Only root may raise a priority; what the kernel refuses stays as it is. */
#pragma once

#include <stdbool.h>

/* For the daemon itself: a better nice value, and a better place for its scheduling group. Neither is inherited by its
 * children. */
void priority_serve_first(void);

/* Clients and kernels wake the daemon just before they wait themselves. If the daemon preempts them in that moment,
 * they are still running when it wakes the next process, which then starts on another processor with cold caches: a run
 * takes twice as long (bench/profile.md). SCHED_BATCH lets them finish, and suits a machine that has idle processors.
 * Where boxes compute (`busy`), the daemon would wait for the end of another process' time slice. It is a real-time
 * process then, and takes the processor at once. Linux keeps 5 % of the processors for ordinary processes. Cheap when
 * nothing changes. */
void priority_adapt(bool is_busy);

/* For requests from a network, whose clients do not wait: from now on it is SCHED_OTHER instead of SCHED_BATCH. */
void priority_stay_alert(void);

/* For a child that works in the background. It leaves the daemon's scheduling group (autogroup), so that it does not
 * use up the daemon's share of a processor. */
void priority_stand_apart(void);
void priority_stand_back(void); /* and comes after all others */
