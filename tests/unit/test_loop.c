/* The loop: descriptors that take much of its time wait for each other, and no others wait for them. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/loop.h"
#include "tap.h"

enum { FLOODERS = 40, WORK_US = 400, QUIET = 200, ROUNDS = 8 };

static struct loop *loop;
static int quiet_pipe[2];
static uint64_t sent_us, longest_us;
static unsigned n_quiet, n_work;

static uint64_t cpu_us(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
}

/* Its descriptor stays readable. */
static void work(void *context, uint32_t events) {
        (void) context;
        (void) events;
        n_work++;
        for (uint64_t began = cpu_us(); cpu_us() - began < WORK_US;)
                ;
}

static void ask(void *context) {
        (void) context;
        sent_us = cpu_us();
        if (write(quiet_pipe[1], "x", 1) != 1)
                loop_stop(loop);
}

/* Counted in time of the loop's own, which a busy machine does not change. */
static void answer(void *context, uint32_t events) {
        (void) context;
        (void) events;
        char byte;
        (void) !read(quiet_pipe[0], &byte, 1);
        uint64_t took_us = cpu_us() - sent_us;
        if (n_quiet > QUIET / 10 && took_us > longest_us) /* who floods has to be found out first */
                longest_us = took_us;
        if (++n_quiet == QUIET || !loop_timer(loop, loop_now_ms() + 2, ask, NULL))
                loop_stop(loop);
}

static void drop_own(void *context, uint32_t events) {
        (void) events;
        work(NULL, 0);
        loop_unwatch(context);
}

/* One round: QUIET requests among the flood. */
static bool run_round(struct err *err) {
        n_quiet = n_work = 0;
        longest_us = 0;
        ask(NULL);
        return loop_run(loop, err) == 0 && n_quiet == QUIET;
}

enum { TIMERS = 200, TIMER_US = 500, TIMERS_TURN_US = 50000 };
static unsigned n_timers;

static void burn(void *context) {
        (void) context;
        for (uint64_t began_us = cpu_us(); cpu_us() - began_us < TIMER_US;)
                ;
        if (++n_timers == TIMERS)
                loop_stop(loop);
}

/* All are due at once; together they take twice as long as a turn may. */
static void test_timers(struct err *err) {
        bool is_made = loop_make(&loop, err) == 0;
        for (unsigned i = 0; i < TIMERS && is_made; i++)
                is_made = loop_timer(loop, loop_now_ms(), burn, NULL) != NULL;
        ok(is_made && loop_run(loop, err) == 0 && n_timers == TIMERS, "timers that are due at once are all called");
        const struct loop_turns turns = loop_turns(loop);
        ok(turns.longest_cpu_us < TIMERS_TURN_US, "but not all in one turn: %llu us",
           (unsigned long long) turns.longest_cpu_us);
        loop_free(loop);
}

/* As when another process of the same user has all watches that Linux gives to a user. */
static bool take_all_watches(void) {
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_CTL_ADD, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static unsigned n_calls[FLOODERS], n_served;

static void count_call(void *context, uint32_t events) {
        unsigned *own = context;
        n_served += events & EPOLLIN && (*own)++ == 0;
        if (n_served == FLOODERS)
                loop_stop(loop);
}

static void on_hang_up(void *context, uint32_t events) {
        *(bool *) context = events & EPOLLHUP;
        loop_stop(loop);
}

static void give_up(void *context) {
        (void) context;
        loop_stop(loop);
}

static void test_without_watches(struct err *err) {
        struct loop_watch *watches[FLOODERS];
        int ends[FLOODERS][2];
        bool good = take_all_watches() && loop_make(&loop, err) == 0;
        ok(good, "a loop without watches of epoll");
        for (size_t i = 0; i < FLOODERS && good; i++) {
                good = pipe(ends[i]) == 0 && write(ends[i][1], "x", 1) == 1;
                watches[i] = good ? loop_watch(loop, ends[i][0], EPOLLIN, count_call, &n_calls[i]) : NULL;
                good = watches[i] != NULL;
        }
        struct loop_timer *patience = good ? loop_timer(loop, loop_now_ms() + 20000, give_up, NULL) : NULL;
        ok(good && loop_run(loop, err) == 0 && n_served == FLOODERS, "serves every descriptor: %u", n_served);
        for (size_t i = 0; i < FLOODERS && good; i++)
                ok(loop_watch_change(watches[i], 0) == 0, "a watch is changed");
        bool has_hung_up = false;
        good = good && pipe(quiet_pipe) == 0;
        struct loop_watch *quiet = good ? loop_watch(loop, quiet_pipe[0], 0, on_hang_up, &has_hung_up) : NULL;
        (void) close(quiet_pipe[1]);
        n_calls[0] = 0;
        ok(quiet && loop_run(loop, err) == 0 && has_hung_up && n_calls[0] == 0, "and says what a watch asks for");
        loop_timer_drop(&patience);
        for (size_t i = 0; i < FLOODERS && good; i++)
                loop_unwatch(&watches[i]);
        loop_unwatch(&quiet);
        loop_free(loop);
}

int main(void) {
        struct loop_watch *watches[FLOODERS], *quiet;
        struct err err = { 0 };
        int full[FLOODERS][2];
        ok(loop_make(&loop, &err) == 0 && pipe(quiet_pipe) == 0, "a loop");
        for (size_t i = 0; i < FLOODERS; i++) {
                ok(pipe(full[i]) == 0 && write(full[i][1], "x", 1) == 1, "something that never ends");
                watches[i] = loop_watch(loop, full[i][0], EPOLLIN, work, NULL);
        }
        quiet = loop_watch(loop, quiet_pipe[0], EPOLLIN, answer, NULL);
        /* A virtual machine that loses its processor counts that as time of the thread, so that the longest of many may
         * be of another's making. A loop that lets a flood pass has long ones in every round. */
        bool is_whole = true, is_short = false;
        for (unsigned round = 0; round < ROUNDS && is_whole && !is_short; round++) {
                is_whole = run_round(&err);
                is_short = longest_us < 4000;
        }
        ok(is_whole, "it turns");
        ok(is_short, "a quiet one waits for a few of them at most: %llu us", (unsigned long long) longest_us);
        ok(n_work > QUIET, "and they have their turns too: %u", n_work);
        const struct loop_turns turns = loop_turns(loop);
        ok(turns.longest_cpu_us >= WORK_US && turns.longest_us >= WORK_US, "the longest turn is known: %llu us",
           (unsigned long long) turns.longest_cpu_us);
        for (size_t i = 0; i < FLOODERS; i++) /* one that is in the slow lane can be dropped, by itself too */
                loop_unwatch(&watches[i]);
        static struct loop_watch *own;
        own = loop_watch(loop, full[0][0], EPOLLIN, drop_own, &own);
        n_quiet = QUIET - 5;
        ask(NULL);
        ok(loop_run(loop, &err) == 0 && !own, "a watch drops itself");
        loop_unwatch(&quiet);
        loop_free(loop);
        test_timers(&err);
        test_without_watches(&err);
        return done_testing();
}
