/* A kernel before the first: a child that does what kernels do, so that the nursery learns what all of them will read.
 * For ctypes. All return 0 or -errno unless said otherwise; none needs anything of Python. */
#pragma once

#include <stddef.h>

#include "cow_snapshot.h"

/* Before the process gives up being dumpable. */
EXPORTED int page_warmup_open(void);

/* In a process of one thread, after the snapshot was taken. 0 in the child (there are two, one after the other), which
 * then does what kernels do and calls page_warmup_end. 1 in the nursery, after the last has ended and all that it read is in
 * the nursery's page tables; -errno if nothing came of it, which costs kernels time and nothing else. */
EXPORTED int page_warmup_begin(void);
/* In the nursery, when it has forked its first kernel. */
void page_warmup_settle(void);

/* A stream in place of fd, from which these bytes can be read, and after them its end. Its other end. */
EXPORTED int page_warmup_feed(int requests_fd, int replies_fd, const char *requests, size_t size);
EXPORTED _Noreturn void page_warmup_end(void);
