/* The ward's program, carried inside glovebox: ward.h says what it is. */
#pragma once

#include <stddef.h>

extern const char ward_image[], ward_image_end[];

static inline size_t ward_image_size(void) {
        return (size_t) (ward_image_end - ward_image);
}
