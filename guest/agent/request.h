/* One frame of the host while it is served. Operations fill `answer`; their caller sends it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "wire/frame.h"

struct request {
        uint32_t id;
        struct frame_reader fields;
        const int *fds; /* came with the frame; borrowed */
        size_t n_fds;
        struct frame_writer answer;
        const char *step; /* what failed, if something does */
};

/* Operations return 0 (answer now), this, or -errno (answer FAILED). */
enum { REQUEST_ANSWERED_LATER = 1 };

/* Serves a frame. False: the box ends, because the frame is QUIT or malformed. */
bool request_serve(const struct frame *frame);
