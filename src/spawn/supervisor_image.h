/* The bytes of the supervisor's program (supervisor.h), embedded in glovebox. */
#pragma once

#include <stddef.h>

extern const char supervisor_image[], supervisor_image_end[];

static inline size_t supervisor_image_size(void) {
        return (size_t) (supervisor_image_end - supervisor_image);
}
