/* Files that a run wrote into the box's own workspace, which is deleted with the box; only artifacts/ is kept. */
#pragma once

#include <stdbool.h>

#include "cli/run_request.h"

enum { RUN_LEFTOVERS_TEXT_MAX = 500 };

/* Names that do not count: caches of libraries, and artifacts/, which is kept. */
bool run_leftovers_passes_over(const char *name);

/* One sentence that names the first of them and what keeps them. False: nothing was left. The names are those that the
 * code in the box chose: bounded, and without control characters. */
bool run_leftovers_describe(const struct run_request *request, int workspace_fd,
                            char ret_text[static RUN_LEFTOVERS_TEXT_MAX]);
