/* Between the two halves of a kernel's record: its life (kernel.c) and what it says (kernel_channel.c). */
#pragma once

#include "kernel/kernel.h"

/* Its pipe of replies can be read. */
void kernel_on_replies(void *context, uint32_t events);

/* From now on its pipes are listened to. */
void kernel_watch_output(struct kernel *kernel);

/* It is gone, or what it says makes no sense. */
void kernel_end(struct kernel *kernel);
void kernel_break_off(struct kernel *kernel);

/* It is ended for a reason that its code has nothing to do with; `why` is a constant text. */
void kernel_give_up(struct kernel *kernel, const char *why);
