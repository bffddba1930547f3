#include "base/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

/* In one turn: so many events, and no further one after so long. The rest is there in the next turn, behind what has
 * come meanwhile, and timers are looked at in between. */
enum { EVENTS_EACH = 16, TURN_US = 4000 };

struct loop_watch {
        struct loop *loop;
        int fd; /* -1: dropped, waits to be freed */
        uint32_t events;
        void (*call)(void *context, uint32_t events);
        void *context;
        struct loop_watch *next_dropped;
};

struct loop_timer {
        struct loop *loop;
        uint64_t at_ms;
        void (*call)(void *context);
        void *context;
        size_t place; /* in the heap */
};

struct loop {
        int epoll_fd;
        bool stopped;
        struct loop_watch *dropped; /* freed after the turn: events for them may still be in hand */
        struct loop_timer **heap;   /* earliest first */
        size_t n_timers, room;
        struct loop_turns turns;
};

uint64_t loop_now_ms(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

uint64_t loop_now_us(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
}

int64_t loop_wall_ms(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int loop_make(struct loop **ret_loop, struct err *err) {
        struct loop *loop = calloc(1, sizeof(*loop));
        if (!loop)
                return err_set(err, ERR_SYSTEM, "out of memory");
        loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (loop->epoll_fd < 0) {
                int code = errno;
                free(loop);
                return err_sys(err, code, "making an event loop");
        }
        *ret_loop = loop;
        return 0;
}

static void free_dropped(struct loop *loop) {
        while (loop->dropped) {
                struct loop_watch *watch = loop->dropped;
                loop->dropped = watch->next_dropped;
                free(watch);
        }
}

void loop_free(struct loop *loop) {
        if (!loop)
                return;
        free_dropped(loop);
        for (size_t i = 0; i < loop->n_timers; i++)
                free(loop->heap[i]);
        free(loop->heap);
        fd_close(&loop->epoll_fd);
        free(loop);
}

/* ---- descriptors ---- */

struct loop_watch *loop_watch(struct loop *loop, int fd, uint32_t events,
                              void (*call)(void *context, uint32_t events), void *context) {
        struct loop_watch *watch = malloc(sizeof(*watch));
        if (!watch)
                return NULL;
        *watch = (struct loop_watch) { .loop = loop, .fd = fd, .events = events, .call = call, .context = context };
        struct epoll_event event = { .events = events, .data.ptr = watch };
        if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
                free(watch);
                return NULL;
        }
        return watch;
}

int loop_watch_change(struct loop_watch *watch, uint32_t events) {
        if (watch->events == events)
                return 0;
        struct epoll_event event = { .events = events, .data.ptr = watch };
        if (epoll_ctl(watch->loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) < 0)
                return -errno;
        watch->events = events;
        return 0;
}

void loop_unwatch(struct loop_watch **watch) {
        struct loop_watch *dropped = *watch;
        *watch = NULL;
        if (!dropped)
                return;
        (void) epoll_ctl(dropped->loop->epoll_fd, EPOLL_CTL_DEL, dropped->fd, NULL);
        dropped->fd = -1;
        dropped->next_dropped = dropped->loop->dropped;
        dropped->loop->dropped = dropped;
}

/* ---- timers: a binary heap ---- */

static void loop_put(struct loop *loop, size_t place, struct loop_timer *timer) {
        loop->heap[place] = timer;
        timer->place = place;
}

static void sift(struct loop *loop, size_t place) {
        struct loop_timer *timer = loop->heap[place];
        while (place > 0 && loop->heap[(place - 1) / 2]->at_ms > timer->at_ms) {
                loop_put(loop, place, loop->heap[(place - 1) / 2]);
                place = (place - 1) / 2;
        }
        for (;;) {
                size_t child = place * 2 + 1;
                if (child >= loop->n_timers)
                        break;
                if (child + 1 < loop->n_timers && loop->heap[child + 1]->at_ms < loop->heap[child]->at_ms)
                        child++;
                if (loop->heap[child]->at_ms >= timer->at_ms)
                        break;
                loop_put(loop, place, loop->heap[child]);
                place = child;
        }
        loop_put(loop, place, timer);
}

struct loop_timer *loop_timer(struct loop *loop, uint64_t at_ms, void (*call)(void *context), void *context) {
        if (loop->n_timers == loop->room) {
                size_t room = loop->room ? loop->room * 2 : 16;
                struct loop_timer **grown = realloc(loop->heap, room * sizeof(struct loop_timer *));
                if (!grown)
                        return NULL;
                loop->heap = grown;
                loop->room = room;
        }
        struct loop_timer *timer = malloc(sizeof(*timer));
        if (!timer)
                return NULL;
        *timer = (struct loop_timer) { .loop = loop, .at_ms = at_ms, .call = call, .context = context };
        loop_put(loop, loop->n_timers++, timer);
        sift(loop, timer->place);
        return timer;
}

static void take_out(struct loop_timer *timer) {
        struct loop *loop = timer->loop;
        size_t place = timer->place;
        struct loop_timer *last = loop->heap[--loop->n_timers];
        if (last != timer) {
                loop_put(loop, place, last);
                sift(loop, place);
        }
}

void loop_timer_drop(struct loop_timer **timer) {
        if (!*timer)
                return;
        take_out(*timer);
        free(*timer);
        *timer = NULL;
}

static int wait_ms(const struct loop *loop) {
        if (loop->n_timers == 0)
                return -1;
        uint64_t now = loop_now_ms(), at = loop->heap[0]->at_ms;
        return at <= now ? 0 : at - now > INT_MAX ? INT_MAX : (int) (at - now);
}

static void call_due_timers(struct loop *loop) {
        uint64_t now = loop_now_ms();
        while (!loop->stopped && loop->n_timers > 0 && loop->heap[0]->at_ms <= now) {
                struct loop_timer *timer = loop->heap[0];
                take_out(timer);
                void (*call)(void *) = timer->call;
                void *context = timer->context;
                free(timer);
                call(context);
        }
}

static uint64_t cpu_now_us(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
}

static void count_turn(struct loop_turns *turns, uint64_t took_us, uint64_t took_cpu_us) {
        turns->count++;
        if (took_us > turns->longest_us)
                turns->longest_us = took_us;
        if (took_cpu_us > turns->longest_cpu_us)
                turns->longest_cpu_us = took_cpu_us;
}

struct loop_turns loop_turns(const struct loop *loop) {
        return loop->turns;
}

int loop_run(struct loop *loop, struct err *err) {
        struct epoll_event events[EVENTS_EACH];
        loop->stopped = false;
        while (!loop->stopped) {
                int n = epoll_wait(loop->epoll_fd, events, EVENTS_EACH, wait_ms(loop));
                if (n < 0 && errno != EINTR)
                        return err_sys(err, errno, "waiting for events");
                uint64_t began_us = loop_now_us(), began_cpu_us = cpu_now_us();
                for (int i = 0; i < n; i++) {
                        struct loop_watch *watch = events[i].data.ptr;
                        if (watch->fd >= 0)
                                watch->call(watch->context, events[i].events);
                        if (loop_now_us() - began_us > TURN_US)
                                break;
                }
                call_due_timers(loop);
                free_dropped(loop);
                count_turn(&loop->turns, loop_now_us() - began_us, cpu_now_us() - began_cpu_us);
        }
        return 0;
}

void loop_stop(struct loop *loop) {
        loop->stopped = true;
}
