/* HTTP to a service on a UNIX socket: one request, one connection, one deadline for both. For helper processes, which
 * may block. It uses HTTP/1.0, so that answers are not chunked and end with the connection. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { UNIX_HTTP_ANSWER_MAX = 4 << 20, UNIX_HTTP_HEAD_MAX = 64 << 10 };

struct unix_http_answer {
        int status;
        char *body; /* owned; NUL follows the last byte */
        size_t size;
};

/* `path` must be escaped. `body` may be NULL. ERR_GONE: nothing listens there; ERR_PERMISSION; ERR_TIMEOUT: the
 * deadline passed. Any HTTP status counts as an answer. */
int unix_http(const char *socket_path, const char *method, const char *path, const char *body, uint64_t deadline_ms,
              struct unix_http_answer *ret_answer, struct err *err);
void unix_http_release(struct unix_http_answer *answer);

/* A request whose answer is streamed and may take minutes. */
struct unix_http_upload {
        const char *socket_path, *path;
        const char *type, *body; /* the media type, and the body */
        size_t size;
        uint64_t deadline_ms;
        void (*on_bytes)(void *context, const char *bytes, size_t size); /* called for each part of the answer's body */
        void *context;
};

/* Posts it. Any HTTP status counts as an answer. Before a failure, `on_bytes` may have got a part of it. */
int unix_http_post(const struct unix_http_upload *upload, int *ret_status, struct err *err);

/* Parses the beginning of an answer: `size` bytes and NUL. Fills the size of the head and the status; size 0: the head
 * is incomplete. ERR_PROTOCOL: it is not HTTP. */
int unix_http_read_head(const char *bytes, size_t size, size_t *ret_head, int *ret_status, struct err *err);
