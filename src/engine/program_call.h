/* One call of a program of the host's, such as the client of an engine: arguments and input in, what it says out, and a
 * deadline for all of it. For helper processes, which may wait. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { PROGRAM_CALL_OUTPUT_MAX = 32 << 20, PROGRAM_CALL_WORDS_MAX = 800 };

struct program_answer {
        int status; /* as in a shell */
        char *output; /* owned; NUL follows the last byte */
        size_t size;
        char words[PROGRAM_CALL_WORDS_MAX]; /* the beginning of what it wrote to its standard error, in one line */
};

/* argv[0] is looked for in PATH; `input` NULL: none. ERR_UNSUPPORTED when there is no such program, ERR_TIMEOUT when it
 * did not end in time: it is killed then. Any status is an answer. */
int program_call(const char *const *argv, const char *input, uint64_t deadline_ms, struct program_answer *ret_answer,
                 struct err *err);
void program_answer_release(struct program_answer *answer);

/* Is there a program of this name in PATH? */
bool program_is_there(const char *name);
