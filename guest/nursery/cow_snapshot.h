/* The nursery's memory as a sealed file that its kernels map: see cow_snapshot.c. Called through ctypes. All functions
 * return 0 or -errno, except where noted; none uses Python. */
#pragma once

#include <stddef.h>

#define EXPORTED __attribute__((visibility("default")))

/* Call it first in a nursery, before its imports. */
EXPORTED int cow_snapshot_open(void);

/* Python's allocator of arenas until the snapshot is taken. */
EXPORTED void *cow_snapshot_arena_allocate(void *context, size_t size);
EXPORTED void cow_snapshot_arena_free(void *context, void *arena, size_t size);

/* Before it is taken: leaves no gaps in memory that is in use. The functions are Python's. */
typedef void *(*cow_snapshot_allocate)(size_t size);
typedef void (*cow_snapshot_free)(void *object);
EXPORTED void cow_snapshot_fill(cow_snapshot_allocate allocate, cow_snapshot_free release);

/* Takes it, in a process of one thread. A failure leaves everything as it was. */
EXPORTED int cow_snapshot_take(void);

/* In an idle kernel: drops its own copies of pages that equal the snapshot's. */
EXPORTED int cow_snapshot_return(void);
