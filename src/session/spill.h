/* The output and the answer that a slow reader has not read when its run ends. They go to a file without a name, so
 * that neither memory nor the session is held by the reader. */
#pragma once

#include <stddef.h>

#include "base/err.h"

struct caller;
struct journal;
struct spill;

/* `box` is the session's id, whose share it counts against, as against the caller's key.
 * Puts the run's output from the caller's cursor on, and the text of the answer, aside for it, and sends what it takes
 * now: it may be answered when this returns. -1: nothing was done; no memory, or no room on the disk. */
int spill_run(struct caller *caller, struct journal *journal, const char *run_id, const char *text, size_t size,
              const char *box, struct err *err);

/* Sends what the caller takes now; the caller is answered when that is all. */
void spill_feed(struct caller *caller);

void spill_free(struct spill *spill); /* NULL is fine */
