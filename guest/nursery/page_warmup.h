/* Page tables that every kernel needs, filled once in the nursery: see page_warmup.c. Called through ctypes. All
 * functions return 0 or -errno, except where noted; none uses Python. */
#pragma once

#include <stddef.h>

#include "cow_snapshot.h"

/* Opens /proc files; before the process stops being dumpable. */
EXPORTED int page_warmup_open(void);

/* In a process of one thread, after cow_snapshot_take. Forks a child and returns 0 in it: the child does what a kernel
 * does and calls page_warmup_end. Returns 1 in the nursery when the child has ended and its pages are in the nursery's
 * page tables. After an error kernels are slower to start, and nothing else changes. */
EXPORTED int page_warmup_begin(void);

/* In the child: makes requests_fd a pipe that holds these bytes and then ends, and replies_fd the write end of another.
 * Returns the read end of that. */
EXPORTED int page_warmup_feed(int requests_fd, int replies_fd, const char *requests, size_t size);
EXPORTED _Noreturn void page_warmup_end(void);

/* In a kernel that waits for its first request: makes the pages that the child of the warm-up wrote to the kernel's own,
 * so that its first run does not copy them one by one. */
EXPORTED void page_warmup_own(void);
