/* HTTP to a service on a UNIX socket: one request, one connection, one deadline for all of it. For helper processes,
 * which may wait. HTTP/1.0, so that answers are neither chunked nor kept open. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { UNIX_HTTP_ANSWER_MAX = 4 << 20 };

struct unix_http_answer {
        int status;
        char *body; /* owned; NUL follows the last byte */
        size_t size;
};

/* `path` is written as it is: the caller has escaped it. `body` NULL: none. ERR_GONE when nobody listens,
 * ERR_TIMEOUT when the answer is not there in time; any status is an answer. */
int unix_http(const char *socket_path, const char *method, const char *path, const char *body, uint64_t deadline_ms,
              struct unix_http_answer *ret_answer, struct err *err);
void unix_http_release(struct unix_http_answer *answer);
