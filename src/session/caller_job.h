/* Work for a caller that a child process does (base/helper_job.h), because code in a box decides how long it takes. */
#pragma once

#include "base/err.h"
#include "base/json_writer.h"

struct caller;

/* Runs in the child: writes the answer, a JSON object. -1: the caller gets the error. `fd` and `context` are those of
 * caller_job_start. */
typedef int caller_work(int fd, const void *context, struct json_writer *answer, struct err *err);

/* Answers the caller when the child has ended, if the caller still waits. `fd` and `context` are borrowed for the call:
 * the child has a copy of this process. -1: no child could be started, and the caller is not answered. */
int caller_job_start(struct caller *caller, int fd, caller_work *work, const void *context, struct err *err);
