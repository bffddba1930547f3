/* The displays of a run so far, for its result. Many runs may each show megabytes and then compute for long: only a
 * little of each is in memory, the rest in a file without a name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/json_writer.h"

struct run_displays {
        struct json_writer text; /* JSON, separated by commas; what follows on the file's contents */
        int fd; /* -1: there is no file */
        size_t written; /* bytes in the file */
        size_t n;
};

/* Is there room for more, as far as the bounds of a run go (run.h)? */
bool run_displays_have_room(const struct run_displays *displays, size_t size);

/* Appends one. `state_dir` is where the file is made; if it cannot be written, all stays in memory. */
void run_displays_add(struct run_displays *displays, const char *state_dir, const char *data, size_t size);

/* Brings all of it back into `text`. A file that cannot be read leaves text.failed. */
void run_displays_load(struct run_displays *displays);

void run_displays_release(struct run_displays *displays);
