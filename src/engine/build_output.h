/* The output of an engine while it builds an image: JSON objects, one on each line, {"stream": …}, {"status": …},
 * {"error": …}, {"message": …}. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { BUILD_OUTPUT_LINE_MAX = 64 << 10, BUILD_OUTPUT_TEXT_MAX = 400 };

struct build_output {
        char *line; /* BUILD_OUTPUT_LINE_MAX bytes; the caller's */
        size_t size;
        bool is_too_long; /* the rest of this line is dropped */
        char last_message[BUILD_OUTPUT_TEXT_MAX + 1];
        char error[BUILD_OUTPUT_TEXT_MAX + 1]; /* why the build failed; "": no error so far */
        void (*report)(void *context, const char *line); /* without control characters; may be NULL */
        void *context;
};

/* Reads the next bytes. `output` is a struct build_output. */
void build_output_feed(void *output, const char *bytes, size_t size);

/* Call it after the last bytes: the last line may have no newline. */
void build_output_end(struct build_output *output);
