/* The kernel of images without Python (guest/commands), embedded in glovebox. */
#pragma once

#include <stddef.h>

extern const char commands_image[], commands_image_end[];

static inline size_t commands_image_size(void) {
        return (size_t) (commands_image_end - commands_image);
}
