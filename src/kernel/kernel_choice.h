/* Which interpreter a piece of Python is given: a light one, which is forked in less than half the time, or a full one,
 * which has the preloaded modules. The choice changes how soon a run is over, never what it does: a light interpreter
 * can import every module, too, from disk. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool kernel_choice_is_light(const char *code, size_t size);
