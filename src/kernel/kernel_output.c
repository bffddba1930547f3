#include "kernel/kernel_output.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "base/memory.h"

enum {
        OUTPUT_BUDGET = 256 << 10, /* bytes of one pipe per turn of the loop, so that a flood does not starve others, */
        OUTPUT_PIECE = 64 << 10, /* moved at a time, */
        OUTPUT_US = 1000, /* and not after so long: memory that is used for the first time can be slow to get */
        PAUSE_MS = 10, /* for which a pipe is not read that brings too much, or output that is cut */
};

static void kernel_take_output(struct kernel *kernel, enum journal_stream stream, size_t budget, uint64_t budget_us) {
        int fd = kernel->fds[MAKER_OUT + (int) stream];
        uint64_t began_us = loop_now_us();
        while (budget > 0 && fd >= 0 && loop_now_us() - began_us <= budget_us) {
                size_t size = 0, piece = budget < OUTPUT_PIECE ? budget : OUTPUT_PIECE;
                bool closed = false;
                if (journal_take(kernel->journal, stream, fd, piece, &size, &closed, NULL) < 0 || closed) {
                        loop_unwatch(&kernel->output_watch[stream]);
                        return;
                }
                if (size == 0)
                        return;
                budget -= size < budget ? size : budget;
                kernel->listener->output(kernel);
        }
}

static void on_pause_over(void *context) {
        struct kernel *kernel = context;
        kernel->pause_timer = NULL;
        struct loop_watch *const watches[] = { kernel->replies_watch, kernel->output_watch[JOURNAL_OUT],
                                               kernel->output_watch[JOURNAL_ERR] };
        for (size_t i = 0; i < ELEMENTS(watches); i++)
                if (watches[i])
                        (void) loop_watch_change(watches[i], EPOLLIN);
}

void kernel_pause_watch(struct kernel *kernel, struct loop_watch *watch) {
        if (!kernel->pause_timer)
                kernel->pause_timer = loop_timer(kernel->loop, loop_now_ms() + PAUSE_MS, on_pause_over, kernel);
        if (kernel->pause_timer && watch)
                (void) loop_watch_change(watch, 0);
}

static void on_late(void *context) {
        struct kernel *kernel = context;
        kernel->late_timer = NULL;
        if (!journal_has_late_output(kernel->journal))
                return;
        journal_record_late_output(kernel->journal);
        kernel->listener->output(kernel);
}

static void kernel_on_output(struct kernel *kernel, enum journal_stream stream) {
        if (journal_open_run(kernel->journal)) {
                kernel_take_output(kernel, stream, OUTPUT_BUDGET, OUTPUT_US);
                if (!kernel->late_timer && journal_has_late_output(kernel->journal))
                        kernel->late_timer = loop_timer(kernel->loop, loop_now_ms() + JOURNAL_LATE_MS, on_late, kernel);
                if (journal_is_cut(kernel->journal, stream))
                        kernel_pause_watch(kernel, kernel->output_watch[stream]);
        } else /* something in the background writes between runs: the next run takes it */
                loop_unwatch(&kernel->output_watch[stream]);
}

static void on_out(void *context, uint32_t events) {
        (void) events;
        kernel_on_output(context, JOURNAL_OUT);
}

static void on_err(void *context, uint32_t events) {
        (void) events;
        kernel_on_output(context, JOURNAL_ERR);
}

void kernel_watch_output(struct kernel *kernel) {
        static void (*const calls[])(void *, uint32_t) = { on_out, on_err };
        for (size_t i = 0; i < JOURNAL_STREAMS; i++)
                if (!kernel->output_watch[i])
                        kernel->output_watch[i] =
                                loop_watch(kernel->loop, kernel->fds[MAKER_OUT + (int) i], EPOLLIN, calls[i], kernel);
}

void kernel_drain(struct kernel *kernel) {
        struct pollfd waiting[JOURNAL_STREAMS];
        for (int i = 0; i < JOURNAL_STREAMS; i++)
                waiting[i] = (struct pollfd) { .fd = kernel->fds[MAKER_OUT + i], .events = POLLIN };
        /* Most runs have printed nothing: one system call for all pipes. */
        if (poll(waiting, ELEMENTS(waiting), 0) == 0)
                return;
        /* Takes only what is in the pipes now, which the run has printed; a background process could go on writing for
         * ever. */
        for (int i = 0; i < JOURNAL_STREAMS; i++) {
                int there = 0;
                if (waiting[i].revents && ioctl(waiting[i].fd, FIONREAD, &there) == 0)
                        kernel_take_output(kernel, (enum journal_stream) i, (size_t) there, UINT64_MAX);
        }
}
