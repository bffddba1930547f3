#include "engine/stream_join.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "base/fd.h"

enum { ROOM = 64 << 10, LAST_MS = 5000 };

struct way {
        int from_fd, to_fd;
        bool has_ended; /* nothing more comes */
        size_t start, end;
        char bytes[ROOM];
};

static bool must_wait(void) {
        return errno == EAGAIN || errno == EINTR;
}

static void take(struct way *way) {
        ssize_t n = read(way->from_fd, way->bytes, ROOM);
        if (n > 0) {
                way->start = 0;
                way->end = (size_t) n;
        } else if (n == 0 || !must_wait())
                way->has_ended = true;
}

/* False: nobody reads there any more. */
static bool give(struct way *way) {
        ssize_t n = write(way->to_fd, way->bytes + way->start, way->end - way->start);
        if (n < 0)
                return must_wait();
        way->start += (size_t) n;
        if (way->start == way->end)
                way->start = way->end = 0;
        return true;
}

/* False: it is over. */
static bool move(struct way *way, const struct pollfd *from, const struct pollfd *to) {
        if (way->end == 0 && from->revents && !way->has_ended)
                take(way);
        if (way->end > 0 && (to->revents & POLLOUT || way->start == 0) && !give(way))
                return false;
        return !(to->revents & (POLLERR | POLLHUP)) && !(way->has_ended && way->end == 0);
}

/* The rest of what was said, to whoever still reads. */
static void finish(struct way *way) {
        for (;;) {
                struct pollfd polled = { .fd = way->to_fd, .events = POLLOUT };
                if (way->end == 0 && !way->has_ended)
                        take(way);
                if (way->end == 0 || poll(&polled, 1, LAST_MS) != 1 || polled.revents & POLLERR || !give(way))
                        return;
        }
}

void stream_join(struct stream_end left, struct stream_end right) {
        static struct way ways[2]; /* large */
        ways[0] = (struct way) { .from_fd = left.in_fd, .to_fd = right.out_fd };
        ways[1] = (struct way) { .from_fd = right.in_fd, .to_fd = left.out_fd };
        for (size_t i = 0; i < 2; i++) {
                (void) fd_set_nonblocking(ways[i].from_fd);
                (void) fd_set_nonblocking(ways[i].to_fd);
        }
        for (;;) {
                struct pollfd polled[4];
                for (size_t i = 0; i < 2; i++) {
                        bool is_full = ways[i].end > 0;
                        polled[2 * i] = (struct pollfd) { .fd = is_full || ways[i].has_ended ? -1 : ways[i].from_fd,
                                                          .events = POLLIN };
                        polled[2 * i + 1] = (struct pollfd) { .fd = ways[i].to_fd, .events = is_full ? POLLOUT : 0 };
                }
                if (poll(polled, 4, -1) < 0 && errno != EINTR)
                        return;
                /* What a side said before it hung up comes first. */
                bool goes_on = true;
                for (size_t i = 0; i < 2; i++)
                        goes_on = move(&ways[i], &polled[2 * i], &polled[2 * i + 1]) && goes_on;
                if (!goes_on)
                        break;
        }
        for (size_t i = 0; i < 2; i++)
                finish(&ways[i]);
}
