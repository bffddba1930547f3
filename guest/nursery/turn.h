/* Requests that ask for nothing but that code be run, answered without Python's loop around them: turn.c. */
#pragma once

#include "cow_snapshot.h" /* EXPORTED */

struct _object;

/* The objects that a kernel works with, as a tuple (glovebox_kernel/turns.py). -1: an exception is set. */
EXPORTED int turn_open(struct _object *given);

/* Answers requests that come through the first descriptor, through the second. None: the first did not come within
 * first_ms, or one after it within then_ms (-1: waits for ever). Bytes: something came that Python must answer, or
 * nothing (b"") ever will. NULL: an exception is set. */
EXPORTED struct _object *turn_serve(int requests_fd, int replies_fd, int first_ms, int then_ms);
