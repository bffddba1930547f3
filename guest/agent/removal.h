/* Directories removed with all they hold, a little in each turn: however large or deep one is, and whatever the box
 * adds to it meanwhile, nobody else waits. */
#pragma once

#include "request.h"

int removal_start(struct request *request);

bool removals_pending(void);
void removals_move(void); /* one turn; DONE or FAILED for what came to its end */
void removals_release(void);
