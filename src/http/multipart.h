/* multipart/form-data (RFC 7578) as a stream: parts are reported as they arrive, and only a part's head is buffered. */
#pragma once

#include <stddef.h>

#include "base/err.h"

struct multipart;

struct multipart_part {
        const char *name; /* of the field */
        const char *file_name; /* NULL: none was given */
        const char *type; /* NULL: none was given */
};

/* Each returns 0, or -1 with err set to stop the parsing. */
struct multipart_events {
        int (*on_part)(void *context, const struct multipart_part *part, struct err *err);
        int (*on_data)(void *context, const char *bytes, size_t size, struct err *err);
        int (*on_part_end)(void *context, struct err *err);
};

/* The Content-Type names the boundary. `events` is borrowed. */
int multipart_open(const char *content_type, const struct multipart_events *events, void *context,
                   struct multipart **ret_multipart, struct err *err);
void multipart_close(struct multipart *multipart); /* NULL is fine */

/* ERR_USAGE: malformed, and from then on every call fails. */
int multipart_feed(struct multipart *multipart, const char *bytes, size_t size, struct err *err);

/* Call it at the end of the body: checks that the last boundary was there. */
int multipart_finish(struct multipart *multipart, struct err *err);
