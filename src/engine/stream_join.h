/* Moves bytes between two streams, both ways, at the pace of the slower side. */
#pragma once

struct stream_end {
        int in_fd, out_fd; /* may be the same socket */
};

/* Returns when one side has ended and its last bytes were passed on. It blocks, so the process can do nothing else. */
void stream_join(struct stream_end left, struct stream_end right);
