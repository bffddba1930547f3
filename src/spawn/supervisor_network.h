/* Network namespaces for the boxes of a supervisor: made once, and used again.
 *
 * Theory of operation. To make a network namespace and to take it apart costs as much as all mounts of a box together,
 * and few runs use theirs at all. So the supervisor makes them itself, with the loopback interface up, in its own user
 * namespace, where no box can change anything of them. When a box has ended, all its processes with it, the supervisor reads
 * what the kernel counts in that namespace: traffic, errors, sockets that are left. If a single number differs from
 * those of a namespace that nobody has been in, it is thrown away; so the next box has nothing to see or to meet of the
 * one before it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* In the supervisor, once: where it can go back to. False: there will be none, and boxes make their own. */
bool supervisor_network_open(void);

/* Enters one for the box that is cloned next; false when there is none to be had. Afterwards comes supervisor_network_leave,
 * whatever became of the box: `pid` is its first process, or -1. */
bool supervisor_network_enter(void);
void supervisor_network_leave(pid_t pid);

/* A child of the supervisor is gone, perhaps the first process of a box. */
void supervisor_network_forget(pid_t pid);
