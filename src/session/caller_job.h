/* Something that is done for a caller by a child (job.h), because how long it takes is a stranger's choice. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/json_writer.h"

struct caller;

/* In the child: writes the answer, a JSON object. -1: it failed, and the caller gets the error. `fd` and `context` are
 * those that were given. */
typedef int caller_work(int fd, const void *context, struct json_writer *answer, struct err *err);

/* Answers the caller when it is done, unless it has left by then. `fd` and `context` are borrowed for the call: the
 * child is a copy of this process as it is then. -1: no child is to be had, and the caller is not answered. */
int caller_job_start(struct caller *caller, int fd, caller_work *work, const void *context, struct err *err);
