/* Boxes that compute long weigh less. At equal weights a kernel that wakes for a millisecond of work waits behind every
 * box that computes, for some milliseconds each, and so do the daemon and its clients. So the weight of a box follows
 * from how much processor time one request of it takes: a box that answers within a millisecond goes first, one that
 * computes for long has a small weight. Those that compute for long weigh the same and share what there is as before;
 * however many they are, together they weigh an eighth of one that answers at once. While boxes that answer at once are
 * in use, they are idle to the scheduler: whoever else wakes takes their processor without waiting for the end of a time
 * slice. Without such others they are not, or the rest of a busy host would leave them nothing. On a machine with
 * processors to spare nothing changes.
 *
 * It counts how long a request takes, not how much a box gets of a processor: where many compete, those who want much
 * get as little as those who want little. What goes on in a box after its run has ended counts like a request that
 * lasts.
 *
 * The time that a box used is read some times in a second, from its first request until it is at rest, and for all
 * boxes now and then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct kernel;

/* What belongs to a kernel. */
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

/* Looks at this box until it is at rest. */
void cpu_weight_watch(struct kernel *kernel);

/* It is about to be freed, or has no box any more. */
void cpu_weight_forget(struct kernel *kernel);
