/* Removes directories with their contents, a few entries in each iteration of the loop. So other requests do not wait
 * for a large directory, or for one to which the box keeps adding. */
#pragma once

#include "request.h"

int removal_start(struct request *request);

bool removals_pending(void);
void removals_move(void); /* one iteration; sends DONE or FAILED for removals that ended */
void removals_release(void);
