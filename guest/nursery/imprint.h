/* What a nursery has in memory when it is ready, shared by its kernels page by page: see imprint.c. For ctypes. All
 * return 0 or -errno unless said otherwise; none needs anything of Python. */
#pragma once

#include <stddef.h>

#define EXPORTED __attribute__((visibility("default")))

/* First thing in a nursery, before its imports. */
EXPORTED int imprint_open(void);

/* Python's allocator of arenas until the imprint is taken. */
EXPORTED void *imprint_arena_allocate(void *context, size_t size);
EXPORTED void imprint_arena_free(void *context, void *arena, size_t size);

/* Before it is taken: leaves no gaps in memory that is in use. The functions are Python's. */
typedef void *(*imprint_allocate)(size_t size);
typedef void (*imprint_free)(void *object);
EXPORTED void imprint_fill(imprint_allocate allocate, imprint_free release);

/* Takes it, in a process of one thread. A failure leaves everything as it was. */
EXPORTED int imprint_take(void);

/* In a kernel that is idle: gives back its own copies of pages that hold what the imprint holds. */
EXPORTED int imprint_return(void);
