/* The program of a run as an argument vector: what an interpreter is given to run code, a file or a module. The same
 * for a box that is made here and for one of the daemon's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "cli/run_request.h"

/* Where the program's file is in the box. */
void run_program_path(const struct run_request *request, char *ret_path, size_t room);

/* argv, NULL-terminated, to be freed as one block: its texts are borrowed from the request, `interpreter` and
 * `path`. */
char **run_program_argv(const struct run_request *request, const char *interpreter, const char *path, struct err *err);

/* Is the text that it reads from standard input its own code? */
static inline bool run_program_reads_code(const struct run_request *request) {
        return request->source == RUN_FROM_INPUT;
}

/* A description for lists, in one line of at most room - 1 bytes: the first line of its code, the script's name, or the
 * words of the command. Valid UTF-8, without control characters. */
void run_program_describe(const struct run_request *request, char *ret_text, size_t room);
