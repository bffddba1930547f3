/* Boxes that compute long weigh less. All boxes lie in one control group and share its processors. At equal weights a
 * kernel that wakes for a millisecond of work waits behind every box that computes, for some milliseconds each. So the
 * weight of a box follows from the processor time of one request: a box that answers within a millisecond goes first,
 * one that computes for long has a small weight. Boxes that compute for long have equal weights and share the
 * processors; however many they are, together they weigh an eighth of one that answers at once. While boxes that answer
 * at once are in use, they are idle to the scheduler: a box that wakes takes their processor without waiting for the
 * end of a time slice. Then short requests have reserved processor time (kernel/cpu_reserve.h), and all boxes together
 * are idle against the rest of the host, unless that leaves next to nothing to boxes that compute. On a machine with
 * idle processors nothing changes.
 *
 * It counts the processor time of requests, not a box's share of a processor: if many compete, boxes that want much get
 * as little as boxes that want little. Background work after a run counts like a request that goes on.
 *
 * The time that a box used is read some times in a second, from its first request until it is at rest, and for all
 * boxes now and then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct kernel;

/* The state of one kernel. */
struct cpu_weight {
        struct kernel *next; /* of those that are looked at */
        bool is_watched;
        unsigned n_requests; /* since the last look */
        uint64_t cpu_us; /* that its box had used then */
        uint64_t each_us; /* what one request takes, lately */
        uint64_t open_us; /* what the last one took so far, or what goes on without one */
        unsigned level; /* its weight is halved so often; CPU_WEIGHT_UNKNOWN: as the last daemon left it */
        unsigned written; /* its weight; 0: the full one that new boxes have */
};

enum { CPU_WEIGHT_UNKNOWN = 255 };

/* A request is about to be sent. */
void cpu_weight_begin(struct kernel *kernel);

/* Measures this box until it is idle. */
void cpu_weight_watch(struct kernel *kernel);

/* It is about to be freed, or has no box any more. */
void cpu_weight_forget(struct kernel *kernel);
