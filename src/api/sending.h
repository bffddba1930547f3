/* An answer that is read piece by piece while the client takes it: a file, an archive. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct api_request;

enum { SENDING_PIECE = 128 << 10 };

struct sending_source {
        /* Fills `bytes`, which has room for SENDING_PIECE. Returns their number, 0 at the end, or -errno. */
        ssize_t (*read)(struct sending_source *source, char *bytes);
        void (*close)(struct sending_source *source);
};

/* Takes the api_request and the source. `length` as in http_stream_begin. */
void sending_begin(struct api_request *api_request, struct sending_source *source, int status, const char *type,
                   int64_t length);
