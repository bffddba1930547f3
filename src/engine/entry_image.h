/* The program of the entry (guest/entry), embedded in glovebox. */
#pragma once

#include <stddef.h>

extern const char entry_image[], entry_image_end[];

static inline size_t entry_image_size(void) {
        return (size_t) (entry_image_end - entry_image);
}
