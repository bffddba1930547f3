/* Network namespaces for boxes of plain runs, made in advance.
 *
 * To make a network namespace takes 0.7 ms, about as long as all mounts of a box. The supervisor makes a few while it
 * has nothing else to do, with the loopback interface up, in its own user namespace: no box can change their settings.
 * Each is for one box and ends with it. */
#pragma once

#include <stdbool.h>

/* Once, in the supervisor's own namespace. False: boxes make their own. */
bool supervisor_network_open(void);

/* How long the supervisor must have been idle before supervisor_network_make_one is called; -1: there are enough. While
 * some are ready, a run that has just begun comes first. If none is, boxes are made faster than that, and the next one
 * would wait for its network. */
int supervisor_network_delay_ms(void);
void supervisor_network_make_one(void);

/* Enters a namespace for the box that is cloned next: one made ahead, or a new one. False if there is none. After the
 * clone comes supervisor_network_leave, whether it succeeded or not. */
bool supervisor_network_enter(void);
void supervisor_network_leave(void);
