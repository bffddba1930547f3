/* Chooses the kernel for a piece of Python: a light one, which is forked in less than half the time, or a full one,
 * which has the preloaded modules. The choice changes the speed of a run, never its result: a light interpreter can
 * import every module, too, from disk. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool kernel_choice_is_light(const char *code, size_t size);
