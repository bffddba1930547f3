/* The Range header: one range of bytes. */
#pragma once

#include <stdint.h>

enum http_range_kind {
        HTTP_RANGE_ALL,  /* no range, several, or one that is malformed: the whole is the answer (RFC 9110, 14.2) */
        HTTP_RANGE_PART, /* 206 */
        HTTP_RANGE_NONE, /* 416: it lies behind the end */
};

/* Of something `size` bytes long. For HTTP_RANGE_PART: first byte and how many. */
enum http_range_kind http_range_parse(const char *range, uint64_t size, uint64_t *ret_first, uint64_t *ret_length);
