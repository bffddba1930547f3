/* Moves bytes between two streams, both ways, as fast as the slower side takes them. */
#pragma once

struct stream_end {
        int in_fd, out_fd; /* the same for a socket */
};

/* Until one side ends: what it had said is passed on first. For a process that does nothing else. */
void stream_join(struct stream_end left, struct stream_end right);
