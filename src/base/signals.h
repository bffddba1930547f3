/* Resets every signal to its default action, so that a process of a box does not inherit what its parents ignored.
 *
 * By bare system calls: C libraries refuse to touch the two or three that they keep for themselves, and those are
 * ignored in everything that glibc's posix_spawn started (make starts its commands with it). */
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

static inline void signals_reset(void) {
        enum { LAST = 64, MASK_BYTES = 8 };
        static const unsigned long default_action[4]; /* handler, flags, restorer, mask: all zero */
        for (long number = 1; number <= LAST; number++)
                (void) syscall(SYS_rt_sigaction, number, default_action, NULL, MASK_BYTES); /* KILL and STOP refuse */
}
