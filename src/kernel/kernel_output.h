/* The output of a kernel: its pipes stdout and stderr, which go into the journal. kernel_drain is in kernel.h. */
#pragma once

#include "kernel/kernel.h"

/* Reads them from now on, for a run. */
void kernel_watch_output(struct kernel *kernel);

/* Does not read this pipe of the kernel for 10 ms: one that sends more than any client reads must not keep the daemon
 * busy. NULL is fine. */
void kernel_pause_watch(struct kernel *kernel, struct loop_watch *watch);
