/* The framing of a body: a number of bytes, or chunks. Chunk extensions and trailers are refused: clients do not send
 * them, and servers that read them differently allow request smuggling. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/head.h" /* struct http_refusal */

enum http_chunk_step {
        CHUNK_SIZE,
        CHUNK_SIZE_LF,
        CHUNK_DATA,
        CHUNK_DATA_CR,
        CHUNK_DATA_LF,
        CHUNK_END_CR,
        CHUNK_END_LF
};

struct http_body {
        bool is_chunked, is_done;
        enum http_chunk_step step;
        unsigned n_digits;
        uint64_t left; /* of the body, or of the chunk */
        uint64_t received; /* data, without framing */
};

/* length -1: chunked. */
void http_body_begin(struct http_body *body, int64_t length);

/* Takes some of the bytes (at least one) and returns their number; *ret_size bytes at *ret_data are the body's, perhaps
 * none. Called until is_done. */
size_t http_body_take(struct http_body *body, const char *bytes, size_t size, const char **ret_data, size_t *ret_size,
                      struct http_refusal *refusal);
