/* Notes on standard error about limits that were asked for and will not hold. */
#pragma once

#include "cli/run_request.h"

/* --memory above what the host has, or on a host that can limit no memory (--allow-weaker). Not with --json and
 * --quiet, nor for an engine that may have another host. */
void limit_note_print(const struct run_request *request);
