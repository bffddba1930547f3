/* A forked kernel becomes a command. For ctypes. */
#pragma once

#include <stddef.h>

#include "cow_snapshot.h"

/* In a kernel that never ran anything, with a PROGRAM request of the kind "exec" (glovebox_kernel/program.py). SIGINT
 * is blocked. Does not return: the process executes the command, or reports why it cannot and ends. */
EXPORTED _Noreturn void execute_program(char *payload, size_t size);

/* In a kernel that waits in the pool: looks up what nearly every command opens. /usr is an overlay of the box's own, in
 * which the first look-up of these names takes 0.2 ms longer than the next. */
EXPORTED void execute_look_up(void);
