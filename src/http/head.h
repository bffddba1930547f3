/* The head of a request: parsed line by line as it arrives, so that an error is found at its own line. The result
 * depends on the bytes alone, never on how they were split into reads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/limits.h"

/* Why a request is refused. `status` 0: it is not. */
struct http_refusal {
        int status;
        const char *why; /* plain ASCII without quotes */
};

struct http_head {
        /* Owned. Positions below are offsets into it, of NUL-terminated texts; 0 is none (the method stands there). */
        char *bytes;
        size_t used, room, line_start;
        uint16_t path, query, host;
        struct {
                uint16_t name, value;
        } headers[HTTP_HEADERS_MAX];
        size_t n_headers;
        uint64_t seen; /* bits of the headers that may come once only */
        int64_t length; /* of the body; -1: chunked */
        bool has_line, is_old /* HTTP/1.0 */, wants_close, expects_continue;
};

/* Ready for the next request; keeps its room when that is small. */
void http_head_reset(struct http_head *head);
void http_head_free(struct http_head *head);

/* Takes bytes up to the end of the head. Returns how many; *ret_done when it is whole. After a refusal the head is of
 * no use. */
size_t http_head_take(struct http_head *head, const char *bytes, size_t size, bool *ret_done,
                      struct http_refusal *refusal);

const char *http_head_find(const struct http_head *head, const char *name);
