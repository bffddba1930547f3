/* Runs a program of the host, such as the client of an engine, with arguments and input, and returns its output. The
 * call has one deadline. For helper processes, which may block. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { PROGRAM_CALL_OUTPUT_MAX = 32 << 20, PROGRAM_CALL_ERROR_OUTPUT_MAX = 800 };

struct program_answer {
        int status; /* the exit status as a shell reports it */
        char *output; /* owned; NUL follows the last byte */
        size_t size;
        char error_output[PROGRAM_CALL_ERROR_OUTPUT_MAX]; /* the beginning of its standard error, in one line */
};

/* Finds argv[0] in PATH. `input` may be NULL. Returns 0 for any exit status. ERR_UNSUPPORTED: there is no such program.
 * ERR_TIMEOUT: it did not end in time and was killed. */
int program_call(const char *const *argv, const char *input, uint64_t deadline_ms, struct program_answer *ret_answer,
                 struct err *err);
void program_answer_release(struct program_answer *answer);

/* True if PATH has a program of this name. */
bool program_is_there(const char *name);
