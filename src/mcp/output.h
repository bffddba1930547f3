/* The part of a run's output that a model sees: both streams in their order, from some byte on. It keeps the beginning
 * and the end, and counts the middle. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MCP_OUTPUT_HEAD = 8 << 10, MCP_OUTPUT_TAIL = 4 << 10 };

struct mcp_output {
        uint64_t skip;  /* bytes before the first requested one */
        uint64_t seen;  /* of all bytes, with those that are skipped */
        bool keeps_end; /* beyond the beginning, the last bytes are kept */
        char *head, *tail;
        size_t head_size;
        uint64_t tail_seen; /* bytes that went to the tail, which is a ring */
};

void mcp_output_release(struct mcp_output *output);

/* False: out of memory, or the head is full and nothing else is kept. */
bool mcp_output_add(struct mcp_output *output, const char *bytes, size_t size);

/* The end that is kept, in order: a fresh text of *ret_size bytes, or NULL when there is none. */
char *mcp_output_end(const struct mcp_output *output, size_t *ret_size);

/* The number of bytes between the kept beginning and the kept end. */
uint64_t mcp_output_left_out(const struct mcp_output *output);

/* The last line so far, whole or in part: at most `room` - 1 bytes, without control characters. */
void mcp_output_last_line(const struct mcp_output *output, char *ret_line, size_t room);
