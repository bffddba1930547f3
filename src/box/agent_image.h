/* The agent's bytes, embedded in glovebox so that the program is one file. */
#pragma once

#include <stddef.h>

extern const char agent_image[], agent_image_end[];

static inline size_t agent_image_size(void) {
        return (size_t) (agent_image_end - agent_image);
}
