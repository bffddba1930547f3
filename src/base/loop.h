/* The event loop of a single-threaded process: descriptors, deadlines, and work to be done after this turn. */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct loop;
struct loop_watch;
struct loop_timer;

int loop_make(struct loop **ret_loop, struct err *err);
void loop_free(struct loop *loop);

/* Calls back with the pending EPOLL… events. The descriptor is borrowed and must be unwatched before it is closed.
 * Watches may be dropped from within any callback, their own included. NULL when memory or descriptors ran out.
 */
struct loop_watch *loop_watch(struct loop *loop, int fd, uint32_t events, void (*call)(void *context, uint32_t events),
                              void *context);
int loop_watch_change(struct loop_watch *watch, uint32_t events);
void loop_unwatch(struct loop_watch **watch); /* NULL inside is fine */

/* Calls back once, at or after the moment (CLOCK_MONOTONIC, as loop_now_ms counts). The timer is freed before the call:
 * the owner must clear its pointer in the callback. */
struct loop_timer *loop_timer(struct loop *loop, uint64_t at_ms, void (*call)(void *context), void *context);
void loop_timer_drop(struct loop_timer **timer);

uint64_t loop_now_ms(void);
uint64_t loop_now_us(void);

/* The time of day, for display only. */
int64_t loop_wall_ms(void);

/* The durations of iterations so far, each from the first event to the next wait. The processor time counts only the
 * loop's own work, however busy the machine is. */
struct loop_turns {
        uint64_t count, longest_us, longest_cpu_us;
};
struct loop_turns loop_turns(const struct loop *loop);

/* Turns until loop_stop. */
int loop_run(struct loop *loop, struct err *err);
void loop_stop(struct loop *loop);
