/* An answer that is read piece by piece while the client takes it: a file, an archive. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct api_request;

enum { SENDING_PIECE = 128 << 10 };

struct sending_source {
        /* Fills `bytes`, which has SENDING_PIECE of room. How many, 0 at the end, or -errno. */
        ssize_t (*read)(struct sending_source *source, char *bytes);
        void (*close)(struct sending_source *source);
};

/* The last thing that is done with the api_request. Takes the source. `length` as in http_stream_begin. */
void sending_begin(struct api_request *api_request, struct sending_source *source, int status, const char *type,
                   int64_t length);
