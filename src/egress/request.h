/* Requests of code in a box to the proxy: CONNECT host:port, or METHOD http://host[:port]/path. Every byte is
 * untrusted.
 *
 * One request per connection. The head is not passed on as received: the server gets a new one, written from the parsed
 * parts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "egress/host.h"

enum { REQUEST_HEAD_MAX = 16 << 10, REQUEST_HEADERS_MAX = 100 };

struct request {
        bool is_connect;
        struct egress_host host;
        uint16_t port;
        char *head; /* the new head for the server, owned; NULL for CONNECT */
        size_t head_size;
        uint64_t body_size; /* the bytes after the head that belong to the request; not for CONNECT */
};

/* The refusal of a request. The reason is one line of plain ASCII: it goes into the status line, which clients show. */
struct refusal {
        int status;
        char reason[200];
        char advice[2000]; /* the body: details, and what to do */
};

void refusal_set(struct refusal *refusal, int status, const char *advice, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* Finds the end of the head in the bytes received so far. *scanned is the position to continue from, 0 at first.
 * Returns the size of the head, 0 if more bytes are needed, or -1 with a refusal. */
long request_scan(const char *bytes, size_t size, size_t *scanned, struct refusal *refusal);

/* Parses a complete head. Returns 0, or -1 with a refusal. */
int request_parse(const char *head, size_t size, struct request *ret_request, struct refusal *refusal);
void request_release(struct request *request);
