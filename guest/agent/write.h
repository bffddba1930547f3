/* Files that the host writes. They appear whole or not at all: each is written under a temporary name, then renamed. */
#pragma once

#include "request.h"

int write_serve(struct request *request);

/* Removes everything that was not committed. */
void writes_release(void);
