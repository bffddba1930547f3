/* Something that is done for a caller by a child (job.h), because how long it takes is a stranger's choice. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/json_writer.h"

struct caller;

/* In the child: writes the answer, a JSON object. -1: it failed, and the caller is told why. `fd` is the descriptor and
 * `context` the text that were given. */
typedef int caller_work(int fd, const char *context, struct json_writer *answer, struct err *err);

/* Answers the caller when it is done, unless it has left by then. `fd` and `context` are borrowed. -1: no child is to be
 * had, and the caller is not answered. */
int caller_job_start(struct caller *caller, int fd, caller_work *work, const char *context, struct err *err);
