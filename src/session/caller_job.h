/* Something that is done for a caller by a child (base/helper_job.h), because how long it takes is a stranger's choice. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/json_writer.h"

struct caller;

/* In the child: writes the answer, a JSON object. -1: it failed, and the caller is told why. `fd` is the descriptor and
 * `context` the text that were given. */
typedef int caller_work(int fd, const char *context, struct json_writer *answer, struct err *err);

/* Short ones wait for their turn (helper_job.h). A long one, which may take as long as a stranger likes, would hold up
 * those. */
enum caller_job_length { CALLER_JOB_SHORT, CALLER_JOB_LONG };

/* Answers the caller when it is done, unless it has left by then. `fd` and `context` are borrowed. -1: no child is to be
 * had, and the caller is not answered. */
int caller_job_start(struct caller *caller, int fd, enum caller_job_length length, caller_work *work,
                     const char *context, struct err *err);
