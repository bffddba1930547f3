/* Processor time that is reserved for short requests. While boxes compute, a kernel that wakes for 0.2 ms of work waits
 * for the turn of the control group that all boxes are in: tens of milliseconds on a busy machine. So a kernel that
 * answers at once is put into the class SCHED_DEADLINE, before all ordinary processes.
 *
 * Code cannot abuse it. Linux enforces the budget, a tenth of one processor. Only the main thread of the kernel has it:
 * threads and children do not inherit it. It ends when a request takes longer than 10 ms, or when the kernel is not
 * used for 2 s. All reservations of a daemon together take 40 % of the processors at most; a kernel that gets none runs
 * as before.
 *
 * Only a daemon with CAP_SYS_NICE can reserve time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kernel;
struct loop_timer;

/* The state of one kernel. */
struct cpu_reserve {
        pid_t pid; /* of its main thread; 0: not looked up yet, -1: unknown */
        bool is_on;
        uint64_t begun_ms; /* the last request */
        uint64_t not_before_ms; /* it gets none until then */
        struct loop_timer *timer; /* until the request takes too long */
};

/* Finds out by a reservation for this process whether the host permits them. Once, at the start. */
void cpu_reserve_look(void);
bool cpu_reserve_is_possible(void);

/* A request is about to be sent, while other boxes compute. A kernel gets no reservation if its code has chosen another
 * scheduling class. False: it gets none because others have them all. */
bool cpu_reserve_begin(struct kernel *kernel);
void cpu_reserve_end(struct kernel *kernel); /* the request is answered */

/* Gives it back if it is not used; at once. */
void cpu_reserve_look_at(struct kernel *kernel);
void cpu_reserve_release(struct kernel *kernel);

/* The kernel was taken over: the last daemon may have left it a reservation. */
void cpu_reserve_take_over(struct kernel *kernel);
