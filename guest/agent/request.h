/* One frame of the host while it is served. Operations fill `answer`; who calls them sends it. */
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

/* Serves a frame. False: it ends the box, because it says so or because it makes no sense. */
bool request_serve(const struct frame *frame);
