/* Ctrl-C during long work only sets a flag, so that the program removes the unfinished directory before it exits. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* From here on SIGINT, SIGTERM and SIGHUP only set a flag; interrupt_end restores the previous handlers. Not nested.
 */
void interrupt_begin(void);
void interrupt_end(void);

bool interrupt_pending(void);

/* The signal that was received, or 0. Kept until the next interrupt_begin. */
int interrupt_signal(void);

int interrupt_error(struct err *err);
