/* Python's arenas, as PyObject_SetArenaAllocator wants them: see arena.c. */
#pragma once

#include <stddef.h>

#define ARENA_EXPORTED __attribute__((visibility("default")))

ARENA_EXPORTED void *arena_alloc(void *context, size_t size);
ARENA_EXPORTED void arena_free(void *context, void *memory, size_t size);

/* Brings the memory of this process into large pages, as far as that goes. */
ARENA_EXPORTED void arena_gather(void);
