/* Work for a caller that a child process does (base/helper_job.h), because code in a box decides how long it takes. */
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
