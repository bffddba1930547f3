/* Files that the host writes. They appear whole or not at all: written beside their place, then moved there. */
#pragma once

#include "request.h"

int write_serve(struct request *request);

/* Leaves nothing of what was not committed. */
void writes_release(void);
