/* The target of a relay in a box that this process made: its agent reports how the program ended. */
#pragma once

#include "box/box.h"
#include "cli/relay_target.h"

struct box_target {
        struct relay_target base;
        struct box *box; /* borrowed */
};

struct box_target box_target_make(struct box *box);
