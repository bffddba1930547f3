/* Kills the processes that one control group lists, for the files of cgroup*.c. */
#pragma once

/* One round over cgroup.procs of an open directory: sends SIGKILL to the listed processes. Returns their number (0:
 * empty) or -errno. Never signals a PID that a new process got meanwhile. */
int cgroup_kill_listed(int dir_fd);
