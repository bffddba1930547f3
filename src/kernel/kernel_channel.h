/* Shared by the two files of a kernel's record: its life (kernel.c) and its frames (kernel_channel.c). */
#pragma once

#include "kernel/kernel.h"

/* Its pipe of replies can be read. */
void kernel_on_replies(void *context, uint32_t events);

/* Ends it: the process has ended, or broke the protocol. */
void kernel_end(struct kernel *kernel);
void kernel_break_off(struct kernel *kernel);

/* Ends it for a reason that its code did not cause; `why` is a constant text. */
void kernel_give_up(struct kernel *kernel, const char *why);
