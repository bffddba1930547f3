#include "base/loop.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"

/* Bounds of one iteration: the number of events, and the time after which no further timer is handled. epoll returns
 * ready descriptors in turn, and every event that it returned is handled: if an iteration ended between two of them,
 * the same ones could be left out again and again. So few are taken at once. */
enum { EVENTS_EACH = 4, EPOLL_EACH = 2, TURN_US = 1000, POLL_OWN = 2 };

/* Two lanes. A watch whose events took much of the loop's time lately is in the slow lane: it is served after the
 * others, and all of the slow lane has only so long in a turn. So watches that keep the loop busy (a box that floods
 * its pipes, a client that requests large answers without end) wait for each other, and no other watch waits for
 * them. */
enum {
        SLOW_LANE_US = 500, /* of a turn; at least one event */
        WINDOW_US = 128000, /* what a watch took counts half after this, and so on */
        SLOW_FROM_US = 2000, /* in about one window */
        FAST_BELOW_US = 500,
        SHORT_US = 50, /* what took less by the clock is not looked at closer */
};

/* Linux bounds the watches of epoll for a user. Without root the boxes and their caller are one user, and a box can
 * take all of them; then new descriptors are watched by poll, which is slower and needs none. */
struct loop_watch {
        struct loop *loop;
        struct loop_watch *next_polled;
        bool is_polled;
        int fd; /* -1: dropped, waits to be freed */
        uint32_t events;
        void (*call)(void *context, uint32_t events);
        void *context;
        struct loop_watch *next_dropped;
        bool is_slow; /* it is in the slow lane */
        uint64_t spent_us, window_us; /* what it took in the window that began then, and half of what it took before */
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
        int slow_fd; /* the slow lane's, watched by the other one */
        bool slow_is_polled;
        struct loop_watch *polled;
        size_t n_polled, polled_from; /* the first that is served in the next turn */
        struct pollfd *poll_fds; /* room for the two and all that are polled */
        bool stopped;
        struct loop_watch *dropped; /* freed after the turn: events for them may still be in hand */
        struct loop_timer **heap; /* earliest first */
        size_t n_timers, room;
        struct loop_turns turns;
        /* The time in which the loop worked or was idle, without the time in which it waited for a processor: so the
         * shares of watches do not shrink on a busy machine. */
        uint64_t clock_us;
};

uint64_t loop_now_ms(void) {
        return clock_now_ms();
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

static int loop_reserve_poll(struct loop *loop) {
        struct pollfd *grown = realloc(loop->poll_fds, (loop->n_polled + POLL_OWN + 1) * sizeof(*grown));
        if (!grown)
                return -1;
        loop->poll_fds = grown;
        return 0;
}

static int add_slow_lane(struct loop *loop) {
        struct epoll_event event = { .events = EPOLLIN };
        int code = epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->slow_fd, &event);
        loop->slow_is_polled = code < 0 && errno == ENOSPC;
        return loop->slow_is_polled ? loop_reserve_poll(loop) : code;
}

int loop_make(struct loop **ret_loop, struct err *err) {
        struct loop *loop = calloc(1, sizeof(*loop));
        if (!loop)
                return err_set(err, ERR_SYSTEM, "out of memory");
        loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        loop->slow_fd = epoll_create1(EPOLL_CLOEXEC);
        if (loop->epoll_fd < 0 || loop->slow_fd < 0 || add_slow_lane(loop) < 0) {
                int code = errno;
                loop_free(loop);
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
        free(loop->poll_fds);
        fd_close(&loop->slow_fd);
        fd_close(&loop->epoll_fd);
        free(loop);
}

/* ---- descriptors ---- */

static int lane_of(const struct loop_watch *watch) {
        return watch->is_slow ? watch->loop->slow_fd : watch->loop->epoll_fd;
}

static int loop_add_polled(struct loop *loop, struct loop_watch *watch) {
        if (loop_reserve_poll(loop) < 0)
                return -1;
        watch->is_polled = true;
        watch->next_polled = loop->polled;
        loop->polled = watch;
        loop->n_polled++;
        return 0;
}

static void loop_drop_polled(struct loop *loop, struct loop_watch *watch) {
        for (struct loop_watch **at = &loop->polled; *at; at = &(*at)->next_polled)
                if (*at == watch) {
                        *at = watch->next_polled;
                        loop->n_polled--;
                        return;
                }
}

struct loop_watch *loop_watch(struct loop *loop, int fd, uint32_t events, void (*call)(void *context, uint32_t events),
                              void *context) {
        struct loop_watch *watch = malloc(sizeof(*watch));
        if (!watch)
                return NULL;
        *watch = (struct loop_watch) { .loop = loop, .fd = fd, .events = events, .call = call, .context = context };
        struct epoll_event event = { .events = events, .data.ptr = watch };
        if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 &&
            (errno != ENOSPC || loop_add_polled(loop, watch) < 0)) {
                free(watch);
                return NULL;
        }
        return watch;
}

int loop_watch_change(struct loop_watch *watch, uint32_t events) {
        if (watch->events == events)
                return 0;
        struct epoll_event event = { .events = events, .data.ptr = watch };
        if (!watch->is_polled && epoll_ctl(lane_of(watch), EPOLL_CTL_MOD, watch->fd, &event) < 0)
                return -errno;
        watch->events = events;
        return 0;
}

void loop_unwatch(struct loop_watch **watch) {
        struct loop_watch *dropped = *watch;
        *watch = NULL;
        if (!dropped)
                return;
        if (dropped->is_polled)
                loop_drop_polled(dropped->loop, dropped);
        else
                (void) epoll_ctl(lane_of(dropped), EPOLL_CTL_DEL, dropped->fd, NULL);
        dropped->fd = -1;
        dropped->next_dropped = dropped->loop->dropped;
        dropped->loop->dropped = dropped;
}

/* ---- timers: a binary heap ---- */

static void loop_put(struct loop *loop, size_t place, struct loop_timer *timer) {
        loop->heap[place] = timer;
        timer->place = place;
}

static void timer_sift_up(struct loop *loop, size_t place) {
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
        timer_sift_up(loop, timer->place);
        return timer;
}

static void take_out(struct loop_timer *timer) {
        struct loop *loop = timer->loop;
        size_t place = timer->place;
        struct loop_timer *last = loop->heap[--loop->n_timers];
        if (last != timer) {
                loop_put(loop, place, last);
                timer_sift_up(loop, place);
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

/* At least one; the others follow in the next iteration, because many timers at once may have much work. */
static void call_due_timers(struct loop *loop, uint64_t turn_began_us) {
        uint64_t now = loop_now_ms();
        while (!loop->stopped && loop->n_timers > 0 && loop->heap[0]->at_ms <= now) {
                struct loop_timer *timer = loop->heap[0];
                take_out(timer);
                void (*call)(void *) = timer->call;
                void *context = timer->context;
                free(timer);
                call(context);
                if (loop_now_us() - turn_began_us > TURN_US)
                        return;
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

/* ---- lanes ---- */

/* If it cannot be had in the other lane, it stays where it is. */
static void change_lane(struct loop_watch *watch) {
        if (watch->is_polled)
                return;
        struct epoll_event event = { .events = watch->events, .data.ptr = watch };
        int to = watch->is_slow ? watch->loop->epoll_fd : watch->loop->slow_fd;
        if (epoll_ctl(to, EPOLL_CTL_ADD, watch->fd, &event) < 0)
                return;
        (void) epoll_ctl(lane_of(watch), EPOLL_CTL_DEL, watch->fd, NULL);
        watch->is_slow = !watch->is_slow;
}

static void note_cost(struct loop_watch *watch, uint64_t took_us) {
        uint64_t windows = (watch->loop->clock_us - watch->window_us) / WINDOW_US;
        if (windows > 0) {
                watch->spent_us = windows < 32 ? watch->spent_us >> windows : 0;
                watch->window_us = watch->loop->clock_us;
        }
        watch->spent_us += took_us;
        if (watch->is_slow ? watch->spent_us < FAST_BELOW_US : watch->spent_us > SLOW_FROM_US)
                change_lane(watch);
}

/* Time in which the loop had no processor does not count for the watch. */
static void call_watch(struct loop_watch *watch, uint32_t events) {
        if (watch->fd < 0)
                return;
        uint64_t began_us = loop_now_us(), began_cpu_us = cpu_now_us();
        watch->call(watch->context, events);
        uint64_t took_us = loop_now_us() - began_us;
        if (watch->fd < 0)
                return;
        if (took_us > SHORT_US)
                took_us = cpu_now_us() - began_cpu_us;
        note_cost(watch, took_us);
}

static void serve_slow_lane(struct loop *loop) {
        uint64_t began_us = loop_now_us();
        struct epoll_event event;
        while (!loop->stopped && epoll_wait(loop->slow_fd, &event, 1, 0) > 0) {
                call_watch(event.data.ptr, event.events);
                free_dropped(loop); /* none of them is in hand: one event was taken */
                if (loop_now_us() - began_us > SLOW_LANE_US)
                        return;
        }
}

/* Those that are polled take their turns: as many as there is room for. */
static int add_polled_events(struct loop *loop, struct epoll_event *events, int n) {
        size_t i = 0, passed = 0;
        if (loop->poll_fds[1].revents)
                events[n++] = (struct epoll_event) { .events = EPOLLIN };
        for (const struct loop_watch *watch = loop->polled; watch; watch = watch->next_polled, i++) {
                const struct pollfd *one = &loop->poll_fds[POLL_OWN + i];
                if (one->revents == 0 || i < loop->polled_from)
                        continue;
                if (n == EVENTS_EACH)
                        break;
                passed = i + 1;
                events[n++] = (struct epoll_event) { .events = (uint32_t) one->revents, .data.ptr = (void *) watch };
        }
        loop->polled_from = i < loop->n_polled ? passed : 0;
        return n;
}

static int loop_poll(struct loop *loop, struct epoll_event *events) {
        size_t n_fds = POLL_OWN;
        loop->poll_fds[0] = (struct pollfd) { .fd = loop->epoll_fd, .events = POLLIN };
        loop->poll_fds[1] = (struct pollfd) { .fd = loop->slow_is_polled ? loop->slow_fd : -1, .events = POLLIN };
        for (const struct loop_watch *watch = loop->polled; watch; watch = watch->next_polled)
                loop->poll_fds[n_fds++] = (struct pollfd) { .fd = watch->fd, .events = (short) watch->events };
        int n = poll(loop->poll_fds, n_fds, wait_ms(loop));
        if (n > 0)
                n = epoll_wait(loop->epoll_fd, events, EPOLL_EACH, 0);
        return n < 0 ? n : add_polled_events(loop, events, n);
}

static int wait_for_events(struct loop *loop, struct epoll_event *events) {
        if (loop->polled || loop->slow_is_polled)
                return loop_poll(loop, events);
        return epoll_wait(loop->epoll_fd, events, EPOLL_EACH, wait_ms(loop));
}

int loop_run(struct loop *loop, struct err *err) {
        struct epoll_event events[EVENTS_EACH];
        uint64_t ended_us = loop_now_us();
        loop->stopped = false;
        while (!loop->stopped) {
                int n = wait_for_events(loop, events);
                if (n < 0 && errno != EINTR)
                        return err_sys(err, errno, "waiting for events");
                uint64_t began_us = loop_now_us(), began_cpu_us = cpu_now_us();
                loop->clock_us += began_us - ended_us;
                bool is_slow_lane_due = false;
                for (int i = 0; i < n; i++) {
                        if (!events[i].data.ptr)
                                is_slow_lane_due = true;
                        else
                                call_watch(events[i].data.ptr, events[i].events);
                }
                call_due_timers(loop, began_us);
                free_dropped(loop);
                if (is_slow_lane_due)
                        serve_slow_lane(loop);
                ended_us = loop_now_us();
                uint64_t worked_us = cpu_now_us() - began_cpu_us;
                loop->clock_us += worked_us;
                count_turn(&loop->turns, ended_us - began_us, worked_us);
        }
        return 0;
}

void loop_stop(struct loop *loop) {
        loop->stopped = true;
}
