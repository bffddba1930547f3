/* The agent's bytes, carried inside glovebox so that one file is the whole program. */
#pragma once

#include <stddef.h>

extern const char agent_image[], agent_image_end[];

static inline size_t agent_image_size(void) {
        return (size_t) (agent_image_end - agent_image);
}
