/* Bytes that wait to be sent: a queue with a bound. */
#pragma once

#include <stddef.h>

struct http_out {
        char *bytes;
        size_t start, end, room;
};

static inline size_t http_out_size(const struct http_out *out) {
        return out->end - out->start;
}

/* 0, -ENOBUFS when more than max bytes would wait, or -ENOMEM; then nothing was added. */
int http_out_add(struct http_out *out, const void *bytes, size_t size, size_t max);
int http_out_add_text(struct http_out *out, const char *text, size_t max);

/* Drops the first `size` bytes, which were sent. */
void http_out_drop(struct http_out *out, size_t size);

/* Gives back most of the room of what was dropped, if that is much. */
void http_out_shrink(struct http_out *out);

/* Gives the room back when it is large and holds nothing. */
void http_out_trim(struct http_out *out);

/* Drops the last bytes: back to a size that it had before. */
void http_out_cut(struct http_out *out, size_t size);
void http_out_free(struct http_out *out);
