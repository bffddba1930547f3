/* Between the two halves of a kernel's record: its life (kernel.c) and what it says (kernel_channel.c). */
#pragma once

#include "session/kernel.h"

/* Its channel can be read or written again. */
void kernel_on_channel(void *context, uint32_t events);

/* From now on its pipes are listened to. */
void kernel_watch_output(struct kernel *kernel);

/* Taken over from a dead daemon, with a run open: does it have that run? Answers come in the order of requests, so a
 * PONG that comes before the run's result says that the run never reached it. */
void kernel_ask_whether_busy(struct kernel *kernel);

/* It is gone, or what it says makes no sense. */
void kernel_end(struct kernel *kernel);
void kernel_break_off(struct kernel *kernel);
