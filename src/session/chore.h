/* A chore: work that may block, done by a child of the daemon, while the loop goes on. What it has to say comes back
 * through a pipe, all at once, when it has ended. It dies with the daemon. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/loop.h"

enum { CHORE_WORDS_MAX = 1 << 20 };

struct chore;

/* In the child: writes its words to `fd`, which is also its standard output, and returns its exit status; or executes
 * something. No other descriptor of the daemon's is open but the first three. */
typedef int chore_work(void *context, int fd);

/* In the daemon: the child is gone, and so is the chore. `words` is NUL-terminated, and NULL when the child was killed,
 * at its time limit for instance, exited with another status than 0 or said too much. */
typedef void chore_done(void *context, const char *words, size_t size);

struct chore *chore_start(struct loop *loop, chore_work *work, chore_done *done, void *context, uint64_t timeout_ms,
                          struct err *err);

/* Kills it; nobody is told. NULL is fine. */
void chore_cancel(struct chore *chore);
