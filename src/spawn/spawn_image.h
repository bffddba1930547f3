/* The bytes of the nursery's library (guest/nursery), embedded in glovebox. */
#pragma once

#include <stddef.h>

extern const char spawn_image[], spawn_image_end[];

static inline size_t spawn_image_size(void) {
        return (size_t) (spawn_image_end - spawn_image);
}
