#include "base/pipe_peek.h"

#include <sys/ioctl.h>

size_t pipe_waiting(int pipe_fd) {
        int waiting = 0;
        return ioctl(pipe_fd, FIONREAD, &waiting) < 0 || waiting < 0 ? 0 : (size_t) waiting;
}
