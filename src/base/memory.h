/* Heap memory: freed on every way out; transfers of ownership are visible. */
#pragma once

#include <stdlib.h>

#include "base/fd.h" /* _cleanup_ */

static inline void free_pointer(void *pointer) {
        free(*(void **) pointer);
        *(void **) pointer = NULL;
}
#define _cleanup_free_ _cleanup_(free_pointer)

#define take_ptr(p)                                                                                                    \
        ({                                                                                                             \
                typeof(p) _taken = (p);                                                                                \
                (p) = NULL;                                                                                            \
                _taken;                                                                                                \
        })

#define ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))
