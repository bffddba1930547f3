/* A bounded stream of bytes out of a part of a file, decompressed on the way when its first bytes say gzip or zstd.
 * Decompression is by library, in this process: no program of the host or of an image is ever run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct stream;

/* The file stays the caller's and must outlive the stream; its offset is neither used nor moved. At most max_bytes
 * come out: a longer stream fails, it is never cut. */
int stream_open_file(int fd, uint64_t offset, uint64_t size, uint64_t max_bytes, struct stream **ret_stream,
                     struct err *err);

/* Fills `buffer` unless the stream ends before. Returns how many bytes came, or -1. */
ssize_t stream_read(struct stream *stream, void *buffer, size_t size, struct err *err);

/* Passes over exactly `size` bytes; fails when there are fewer. */
int stream_skip(struct stream *stream, uint64_t size, struct err *err);

uint64_t stream_position(const struct stream *stream);
bool stream_is_compressed(const struct stream *stream);

/* Frees *stream and leaves NULL. */
void stream_free(struct stream **stream);
