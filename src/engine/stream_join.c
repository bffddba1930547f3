#include "engine/stream_join.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "base/fd.h"

enum { BUFFER_BYTES = 64 << 10, FLUSH_MS = 5000 };

/* One direction. */
struct flow {
        int from_fd, to_fd;
        bool has_ended; /* end of file, or an error */
        size_t start, end;
        char bytes[BUFFER_BYTES];
};

static bool should_retry(void) {
        return errno == EAGAIN || errno == EINTR;
}

static void flow_read(struct flow *flow) {
        ssize_t n = read(flow->from_fd, flow->bytes, BUFFER_BYTES);
        if (n > 0) {
                flow->start = 0;
                flow->end = (size_t) n;
        } else if (n == 0 || !should_retry())
                flow->has_ended = true;
}

/* False: the reader has closed its end. */
static bool flow_write(struct flow *flow) {
        ssize_t n = write(flow->to_fd, flow->bytes + flow->start, flow->end - flow->start);
        if (n < 0)
                return should_retry();
        flow->start += (size_t) n;
        if (flow->start == flow->end)
                flow->start = flow->end = 0;
        return true;
}

/* False: this direction has ended. */
static bool flow_pass(struct flow *flow, const struct pollfd *from, const struct pollfd *to) {
        if (flow->end == 0 && from->revents && !flow->has_ended)
                flow_read(flow);
        if (flow->end > 0 && (to->revents & POLLOUT || flow->start == 0) && !flow_write(flow))
                return false;
        return !(to->revents & (POLLERR | POLLHUP)) && !(flow->has_ended && flow->end == 0);
}

/* Passes on the remaining bytes of one side if the other end is still open. */
static void flow_flush(struct flow *flow) {
        for (;;) {
                struct pollfd polled = { .fd = flow->to_fd, .events = POLLOUT };
                if (flow->end == 0 && !flow->has_ended)
                        flow_read(flow);
                if (flow->end == 0 || poll(&polled, 1, FLUSH_MS) != 1 || polled.revents & POLLERR || !flow_write(flow))
                        return;
        }
}

void stream_join(struct stream_end left, struct stream_end right) {
        static struct flow flows[2]; /* large */
        flows[0] = (struct flow) { .from_fd = left.in_fd, .to_fd = right.out_fd };
        flows[1] = (struct flow) { .from_fd = right.in_fd, .to_fd = left.out_fd };
        for (size_t i = 0; i < 2; i++) {
                (void) fd_set_nonblocking(flows[i].from_fd);
                (void) fd_set_nonblocking(flows[i].to_fd);
        }
        for (;;) {
                struct pollfd polled[4];
                for (size_t i = 0; i < 2; i++) {
                        bool is_full = flows[i].end > 0;
                        polled[2 * i] = (struct pollfd) { .fd = is_full || flows[i].has_ended ? -1 : flows[i].from_fd,
                                                          .events = POLLIN };
                        polled[2 * i + 1] = (struct pollfd) { .fd = flows[i].to_fd, .events = is_full ? POLLOUT : 0 };
                }
                if (poll(polled, 4, -1) < 0 && errno != EINTR)
                        return;
                /* A side may have sent bytes before it closed: they are moved before the loop ends. */
                bool goes_on = true;
                for (size_t i = 0; i < 2; i++)
                        goes_on = flow_pass(&flows[i], &polled[2 * i], &polled[2 * i + 1]) && goes_on;
                if (!goes_on)
                        break;
        }
        for (size_t i = 0; i < 2; i++)
                flow_flush(&flows[i]);
}
