/* The spawn's bytes, carried inside glovebox: guest/nursery says what it is. */
#pragma once

#include <stddef.h>

extern const char spawn_image[], spawn_image_end[];

static inline size_t spawn_image_size(void) {
        return (size_t) (spawn_image_end - spawn_image);
}
