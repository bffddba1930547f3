/* Where Python's objects lie: those that kernels write to, together. See place.c. For ctypes; all of it is for naught,
 * and harmless, in a process that did not start with this library preloaded and PLACE_VARIABLE set. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cow_snapshot.h"

#define PLACE_VARIABLE "GLOVEBOX_PLACE"

/* PyMemAllocatorEx. */
struct allocator {
        void *context;
        void *(*malloc)(void *context, size_t size);
        void *(*calloc)(void *context, size_t n, size_t size);
        void *(*realloc)(void *context, void *block, size_t size);
        void (*free)(void *context, void *block);
};

enum {
        PLACE_BEGUN = 1,  /* the library was there before Python */
        PLACE_SEEDED = 2, /* and has set PYTHONHASHSEED, which nobody else is to see */
};
EXPORTED int place_begun(void);

/* Is this a process that only finds out what kernels write to? It then does what kernels do, and calls place_report. */
EXPORTED bool place_is_survey(void);

/* Before the snapshot is taken: from here on Python allocates as it always does. */
EXPORTED void place_end(void);

/* In a survey. */
EXPORTED _Noreturn void place_report(void);
