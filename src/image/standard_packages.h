/* The packages of the standard images, images/requirements.txt: one requirement on each line. */
#pragma once

#include <stddef.h>

extern const char standard_packages[], standard_packages_end[];

static inline size_t standard_packages_size(void) {
        return (size_t) (standard_packages_end - standard_packages);
}
