/* Something that is done for an asker by a child (errand.h), because how long it takes is a stranger's choice. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "session/json_text.h"

struct asker;

/* In the child: writes the answer, a JSON object. -1: it failed, and the asker is told why. `fd` is the descriptor and
 * `context` the text that were given. */
typedef int asker_work(int fd, const char *context, struct json_text *answer, struct err *err);

/* Answers the asker when it is done, unless it has left by then. `fd` and `context` are borrowed. -1: no child is to be
 * had, and the asker is not answered. */
int asker_errand_start(struct asker *asker, int fd, asker_work *work, const char *context, struct err *err);
