/* What a kernel says and is told: its pipes, into the journal, and the frames of its channel. */
#include "session/kernel_channel.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/memory.h"
#include "session/touch.h"

enum {
        HEADER_SIZE = 8,
        OUTPUT_BUDGET = 1 << 20, /* bytes of one pipe per turn of the loop, so that a flood starves nobody */
        INBOUND_KEPT = 1 << 20,  /* of the buffer for frames, when it is empty */
};

/* ---- output ---- */

static void take_output(struct kernel *kernel, enum journal_stream stream, size_t budget) {
        int fd = kernel->fds[MAKER_OUT + (int) stream];
        while (budget > 0 && fd >= 0) {
                size_t size = 0;
                bool closed = false;
                if (journal_take(kernel->journal, stream, fd, budget, &size, &closed, NULL) < 0 || closed) {
                        loop_unwatch(&kernel->output_watch[stream]);
                        return;
                }
                if (size == 0)
                        return;
                budget -= size < budget ? size : budget;
                kernel->listener->output(kernel);
        }
}

static void on_output(struct kernel *kernel, enum journal_stream stream) {
        if (journal_open_run(kernel->journal))
                take_output(kernel, stream, OUTPUT_BUDGET);
        else /* something in the background writes between runs: the next run takes it */
                loop_unwatch(&kernel->output_watch[stream]);
}

static void on_out(void *context, uint32_t events) {
        (void) events;
        on_output(context, JOURNAL_OUT);
}

static void on_err(void *context, uint32_t events) {
        (void) events;
        on_output(context, JOURNAL_ERR);
}

void kernel_watch_output(struct kernel *kernel) {
        static void (*const calls[])(void *, uint32_t) = { on_out, on_err };
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                if (!kernel->output_watch[i])
                        kernel->output_watch[i] =
                                loop_watch(kernel->loop, kernel->fds[MAKER_OUT + (int) i], EPOLLIN, calls[i], kernel);
}

void kernel_drain(struct kernel *kernel) {
        struct pollfd waiting[JOURNAL_STREAMS + 1] = { [JOURNAL_STREAMS] = { .fd = touch_fd(), .events = POLLIN } };
        for (int i = 0; i < JOURNAL_STREAMS; i++)
                waiting[i] = (struct pollfd) { .fd = kernel->fds[MAKER_OUT + i], .events = POLLIN };
        /* Most runs have printed nothing and made no files: one question, not one for each. */
        int n = poll(waiting, ELEMENTS(waiting), 0);
        kernel->is_untouched = n >= 0 && touch_fd() >= 0 && !waiting[JOURNAL_STREAMS].revents;
        if (n == 0)
                return;
        /* Bounded: a process in the background could go on writing for ever. */
        for (int i = 0; i < JOURNAL_STREAMS; i++)
                take_output(kernel, (enum journal_stream) i, 4 * OUTPUT_BUDGET);
}

bool kernel_is_untouched(struct kernel *kernel) {
        bool is_untouched = kernel->is_untouched;
        kernel->is_untouched = false;
        return is_untouched;
}

/* ---- frames out ---- */

static void flush(struct kernel *kernel) {
        while (kernel->outbound_at < kernel->outbound_size) {
                ssize_t n = send(kernel->fds[MAKER_CHANNEL], kernel->outbound + kernel->outbound_at,
                                 kernel->outbound_size - kernel->outbound_at, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) /* EAGAIN: when it reads on; anything else: its end is on the way */
                        break;
                kernel->outbound_at += (size_t) n;
        }
        bool waiting = kernel->outbound_at < kernel->outbound_size;
        if (!waiting) {
                free(kernel->outbound);
                kernel->outbound = NULL;
                kernel->outbound_at = kernel->outbound_size = 0;
        }
        if (kernel->channel_watch)
                (void) loop_watch_change(kernel->channel_watch, waiting ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Takes the place of what was to be sent. */
static int put_frame(struct kernel *kernel, enum kernel_frame type, const void *payload, size_t size) {
        kernel->outbound = malloc(HEADER_SIZE + size);
        if (!kernel->outbound)
                return -ENOMEM;
        uint32_t size_le = htole32((uint32_t) size);
        memset(kernel->outbound, 0, HEADER_SIZE);
        memcpy(kernel->outbound, &size_le, 4);
        kernel->outbound[4] = (char) type;
        if (size > 0)
                memcpy(kernel->outbound + HEADER_SIZE, payload, size);
        kernel->outbound_at = 0;
        kernel->outbound_size = HEADER_SIZE + size;
        return 0;
}

void kernel_ask_whether_busy(struct kernel *kernel) {
        if (put_frame(kernel, KERNEL_PING, NULL, 0) < 0)
                return; /* then the time limit tells */
        kernel->pong = KERNEL_PONG_DECIDES;
        flush(kernel);
}

int kernel_send(struct kernel *kernel, enum kernel_frame type, const void *payload, size_t size, struct err *err) {
        if (!kernel_is_free(kernel))
                return err_set(err, ERR_BUSY, "the kernel is busy");
        if (size > KERNEL_FRAME_MAX)
                return err_set(err, ERR_LIMIT, "more than %d bytes of code", KERNEL_FRAME_MAX);
        kernel_watch_output(kernel);
        if (put_frame(kernel, type, payload, size) < 0)
                return err_set(err, ERR_SYSTEM, "out of memory");
        kernel->state = KERNEL_BUSY;
        kernel->is_untouched = false;
        kernel->n_displays = 0;
        flush(kernel);
        return 0;
}

/* ---- frames in ---- */

/* One buffer goes from kernel to kernel: most are idle, and between two frames none is needed. */
static char *spare;
static size_t spare_room;

static void give_room(struct kernel *kernel) {
        if (!spare && kernel->inbound_room <= INBOUND_KEPT) {
                spare = kernel->inbound;
                spare_room = kernel->inbound_room;
        } else
                free(kernel->inbound);
        kernel->inbound = NULL;
        kernel->inbound_room = 0;
}

static bool make_room(struct kernel *kernel, size_t size) {
        if (!kernel->inbound && spare) {
                kernel->inbound = spare;
                kernel->inbound_room = spare_room;
                spare = NULL;
        }
        if (size <= kernel->inbound_room)
                return true;
        size_t room = kernel->inbound_room ? kernel->inbound_room : 4096;
        while (room < size)
                room *= 2;
        char *grown = realloc(kernel->inbound, room);
        if (!grown)
                return false;
        kernel->inbound = grown;
        kernel->inbound_room = room;
        return true;
}

/* Hands one whole frame on. False when the kernel is dead afterwards, or talks nonsense. */
static bool handle_frame(struct kernel *kernel, enum kernel_frame type, const char *payload, size_t size) {
        switch (type) {
        case KERNEL_READY:
                if (kernel->state != KERNEL_STARTING)
                        return false;
                kernel->state = KERNEL_IDLE;
                kernel->was_ready = true;
                loop_timer_drop(&kernel->start_timer);
                kernel_measure(kernel); /* what starting took is nobody's run */
                kernel->listener->ready(kernel);
                return true;
        case KERNEL_RESULT:
        case KERNEL_ANSWER:
                if (kernel->state != KERNEL_BUSY && kernel->may_repeat) {
                        kernel->may_repeat = false;
                        return true;
                }
                if (kernel->state != KERNEL_BUSY)
                        return false;
                if (kernel->outbound)
                        return false; /* an answer to what it has not read yet */
                kernel->state = KERNEL_IDLE;
                kernel->may_repeat = false;
                if (kernel->pong == KERNEL_PONG_DECIDES)
                        kernel->pong = KERNEL_PONG_FOLLOWS;
                if (journal_open_run(kernel->journal))
                        kernel_drain(kernel);
                kernel->listener->frame(kernel, type, payload, size);
                return true;
        case KERNEL_DISPLAY:
                if (kernel->state != KERNEL_BUSY || ++kernel->n_displays > KERNEL_DISPLAYS_MAX)
                        return false;
                kernel->listener->frame(kernel, type, payload, size);
                return true;
        case KERNEL_PONG:
                if (kernel->pong == KERNEL_PONG_DECIDES) {
                        kernel->state = KERNEL_IDLE;
                        kernel->listener->frame(kernel, type, payload, size);
                } else if (kernel->pong != KERNEL_PONG_FOLLOWS)
                        return false; /* nobody asked */
                kernel->pong = KERNEL_PONG_NONE;
                return true;
        default:
                return false;
        }
}

/* Takes whole frames from the front of the buffer. */
static bool handle_frames(struct kernel *kernel) {
        size_t at = 0;
        bool good = true;
        while (good && !kernel->deaf && kernel->inbound_size - at >= HEADER_SIZE) {
                const char *head = kernel->inbound + at;
                uint32_t size;
                memcpy(&size, head, 4);
                size = le32toh(size);
                if (size > KERNEL_FRAME_MAX || head[5] || head[6] || head[7])
                        return false;
                size_t whole = HEADER_SIZE + (size_t) size;
                if (kernel->inbound_size - at < whole)
                        break;
                _cleanup_free_ char *frame = malloc(size + 1);
                if (!frame)
                        return false;
                memcpy(frame, head + HEADER_SIZE, size);
                frame[size] = '\0';
                at += whole;
                good = handle_frame(kernel, (unsigned char) head[4], frame, size);
        }
        /* Once for all of them: a flood of tiny frames must not cost a move of the rest for each. */
        memmove(kernel->inbound, kernel->inbound + at, kernel->inbound_size - at);
        kernel->inbound_size -= at;
        if (kernel->inbound_size == 0)
                give_room(kernel);
        return good;
}

static bool is_one_frame(const char *bytes, size_t size) {
        uint32_t payload;
        if (size < HEADER_SIZE)
                return false;
        memcpy(&payload, bytes, 4);
        return HEADER_SIZE + (size_t) le32toh(payload) == size;
}

/* Takes bytes that were looked at before. */
static bool consume(int fd, size_t size) {
        static char nowhere[64 << 10];
        while (size > 0) {
                ssize_t n = recv(fd, nowhere, size < sizeof(nowhere) ? size : sizeof(nowhere), MSG_DONTWAIT);
                if (n <= 0)
                        return false;
                size -= (size_t) n;
        }
        return true;
}

/* What it said last is written down: it need not say it again to a daemon that comes after this one. */
static void settle(struct kernel *kernel) {
        if (kernel->peeked > 0 && !consume(kernel->fds[MAKER_CHANNEL], kernel->peeked))
                kernel->out_of_step = true;
        kernel->peeked = 0;
}

void kernel_on_channel(void *context, uint32_t events) {
        struct kernel *kernel = context;
        if (events & EPOLLOUT)
                flush(kernel);
        if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                return;
        if (!make_room(kernel, kernel->inbound_size + (64 << 10))) {
                kernel_break_off(kernel);
                return;
        }
        size_t room = kernel->inbound_room - kernel->inbound_size;
        char *at = kernel->inbound + kernel->inbound_size;
        /* While a run is on: look first, write it down, then take it. A daemon killed in between loses nothing, unless
         * it takes the kernel along. */
        bool journaled = journal_open_run(kernel->journal), was_ending = kernel->ending;
        bool peeks = journaled && !kernel->ephemeral;
        ssize_t n = recv(kernel->fds[MAKER_CHANNEL], at, room, MSG_DONTWAIT | (peeks ? MSG_PEEK : 0));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) { /* closed by the process, which is ending or has: its agent tells how */
                loop_unwatch(&kernel->channel_watch);
                if (!kernel->exited)
                        kernel_signal(kernel, SIGKILL);
                return;
        }
        /* One whole answer is the usual case: it goes into the journal as the run's result, and need not be there
         * twice. */
        bool whole = kernel->inbound_size == 0 && is_one_frame(at, (size_t) n);
        if (journaled && !whole && journal_note_channel(kernel->journal, at, (size_t) n, NULL) < 0) {
                kernel_break_off(kernel);
                return;
        }
        kernel->peeked = peeks ? (size_t) n : 0;
        if (!whole)
                settle(kernel);
        kernel->inbound_size += (size_t) n;
        bool good = !kernel->out_of_step && handle_frames(kernel);
        if (kernel->deaf) {
                if (kernel->is_over && !was_ending)
                        kernel_end(kernel);
                return;
        }
        settle(kernel);
        if (!good || kernel->out_of_step)
                kernel_break_off(kernel);
}
