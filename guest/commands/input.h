/* Standard input of a command, from its client. A display requests it; then pieces appear in the session's own
 * directory, each after the one before was removed. An empty piece is the end (glovebox_kernel/host_input.py). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct input {
        bool is_offered;
        int fd; /* of the command's pipe; -1 when nothing more goes there */
        char token[65];
        json_t *id; /* of the request, borrowed */
        unsigned next;
        uint64_t asked_ms;
        char *piece;
        size_t size, at;
        bool has_ended;
        int pause_ms;
};

struct input input_of(json_t *request);

/* Moves the input that is there. Returns the milliseconds until the next call; -1: no more input will come. */
int input_move(struct input *input);

/* Removes pieces that were not read. */
void input_end(struct input *input);
