/* Killing what one control group lists, for the files of cgroup*.c. */
#pragma once

/* One round over cgroup.procs of an open directory: SIGKILL to what stands there. Returns how many it found (0: empty)
 * or -errno. Never signals a number that has been handed to a new process meanwhile. */
int cgroup_kill_listed(int dir_fd);
