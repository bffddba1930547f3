/* Removes directories with their contents, a few entries in each iteration of the loop: other requests do not wait,
 * however large a directory is and whatever the box adds to it meanwhile. */
#pragma once

#include "request.h"

int removal_start(struct request *request);

bool removals_pending(void);
void removals_move(void); /* one turn; DONE or FAILED for what came to its end */
void removals_release(void);
