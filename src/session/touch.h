/* Has anything come into one of many directories? One question for all of them, that costs nothing when it is asked
 * together with another one: a descriptor that becomes readable. Directories that are on their own disk, not on a
 * tmpfs; where the system has no room for a watch, whoever asks must look himself. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"

void touch_open(struct loop *loop);
void touch_close(void);

/* Watches the directory until the first thing comes into it, or it goes. Returns 0 or -errno. */
int touch_watch(int dir_fd, const char *name);

/* Readable when something has come that is not counted yet; -1 when nothing can be watched. */
int touch_fd(void);

/* How often something came. While this is the same and the descriptor is not readable, nothing did. */
uint64_t touch_count(void);
