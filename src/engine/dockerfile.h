/* images/Dockerfile, embedded in glovebox. */
#pragma once

#include <stddef.h>

extern const char dockerfile[], dockerfile_end[];

static inline size_t dockerfile_size(void) {
        return (size_t) (dockerfile_end - dockerfile);
}
