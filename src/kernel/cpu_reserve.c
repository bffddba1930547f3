#include "kernel/cpu_reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/syscalls.h"
#include "kernel/kernel.h"
#include "spawn/supervisor.h"

enum {
        RUNTIME_NS = 2000000, /* of each period: a tenth */
        PERIOD_NS = 20000000,
        PER_PROCESSOR = 4, /* reservations: the rest is for the daemon, and for all others */
        LONGEST_MS = 10,
        PAUSE_MS = 5000,  /* after a request that took longer; then the period in which it left has passed */
        UNUSED_MS = 2000, /* a reservation that is not used for so long is given back */
        RUNTIME_MIN_NS = 1024,
};
static const uint64_t PERIOD_MAX_NS = 4000000000;

static bool is_possible;
static unsigned n_reserved;

static int set_budget(pid_t pid, uint64_t runtime_ns, uint64_t period_ns) {
        enum { RESET_ON_FORK = 1 };
        const struct sys_sched_attr budget = { .size = sizeof(budget),
                                               .policy = SCHED_DEADLINE,
                                               .flags = RESET_ON_FORK,
                                               .runtime_ns = runtime_ns,
                                               .deadline_ns = period_ns,
                                               .period_ns = period_ns };
        return sys_sched_setattr(pid, &budget);
}

/* With the nice value that it has. Linux (seen on 6.18) never gives back what a process had reserved that sleeps while
 * it leaves the class. So it leaves with the smallest budget that there is, which counts as nothing. */
static void set_ordinary(pid_t pid) {
        struct sys_sched_attr ordinary = { .size = sizeof(ordinary), .policy = SCHED_OTHER };
        ordinary.nice = getpriority(PRIO_PROCESS, (id_t) pid);
        (void) set_budget(pid, RUNTIME_MIN_NS, PERIOD_MAX_NS);
        (void) sys_sched_setattr(pid, &ordinary);
}

void cpu_reserve_look(void) {
        is_possible = set_budget(0, RUNTIME_NS, PERIOD_NS) == 0;
        if (is_possible)
                set_ordinary(0);
        else
                is_possible = errno == EBUSY; /* all is reserved at the moment */
}

bool cpu_reserve_is_possible(void) {
        return is_possible;
}

/* The first child of the agent: the kernel, which the agent starts before all others. */
static pid_t first_child_of(pid_t agent) {
        char path[64], text[32] = "";
        (void) snprintf(path, sizeof(path), "/proc/%d/task/%d/children", agent, agent);
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
                return -1;
        long pid = strtol(text, NULL, 10);
        return pid > 0 ? (pid_t) pid : -1;
}

/* A process that was executed has no pidfd here. */
static pid_t find_pid(const struct kernel *kernel) {
        if (*kernel->engine || kernel->fds[MAKER_PIDFD] < 0)
                return -1;
        return kernel->fds[MAKER_KERNEL] >= 0 ? supervisor_pid_of(kernel->fds[MAKER_KERNEL])
                                              : first_child_of(kernel->pid);
}

/* Else its process id may be that of another process. A kernel that was executed takes its agent with it. */
static bool is_alive(const struct kernel *kernel) {
        int forked_fd = kernel->fds[MAKER_KERNEL];
        return sys_pidfd_send_signal(forked_fd >= 0 ? forked_fd : kernel->fds[MAKER_PIDFD], 0) == 0;
}

static void make_ordinary(struct kernel *kernel) {
        pid_t pid = kernel->reserve.pid;
        if (is_alive(kernel) && sched_getscheduler(pid) == (SCHED_DEADLINE | SCHED_RESET_ON_FORK))
                set_ordinary(pid);
}

static bool wants_one(struct kernel *kernel) {
        struct cpu_reserve *reserve = &kernel->reserve;
        if (!is_possible || loop_now_ms() < reserve->not_before_ms)
                return false;
        if (reserve->pid == 0)
                reserve->pid = find_pid(kernel);
        return reserve->pid > 0 && is_alive(kernel) && sched_getscheduler(reserve->pid) == SCHED_OTHER;
}

static void on_too_long(void *context) {
        struct kernel *kernel = context;
        kernel->reserve.timer = NULL;
        kernel->reserve.not_before_ms = loop_now_ms() + PAUSE_MS;
        cpu_reserve_release(kernel);
}

bool cpu_reserve_begin(struct kernel *kernel) {
        struct cpu_reserve *reserve = &kernel->reserve;
        if (!reserve->is_on) {
                if (!wants_one(kernel))
                        return true;
                if (n_reserved >= PER_PROCESSOR * (unsigned) sysconf(_SC_NPROCESSORS_ONLN))
                        return false;
                if (set_budget(reserve->pid, RUNTIME_NS, PERIOD_NS) < 0)
                        return errno != EBUSY;
                reserve->is_on = true;
                n_reserved++;
        }
        reserve->begun_ms = loop_now_ms();
        loop_timer_drop(&reserve->timer);
        reserve->timer = loop_timer(kernel->loop, reserve->begun_ms + LONGEST_MS, on_too_long, kernel);
        if (!reserve->timer)
                cpu_reserve_release(kernel);
        return true;
}

void cpu_reserve_end(struct kernel *kernel) {
        loop_timer_drop(&kernel->reserve.timer);
}

void cpu_reserve_look_at(struct kernel *kernel) {
        if (kernel->reserve.is_on && loop_now_ms() - kernel->reserve.begun_ms > UNUSED_MS)
                cpu_reserve_release(kernel);
}

void cpu_reserve_release(struct kernel *kernel) {
        loop_timer_drop(&kernel->reserve.timer);
        if (!kernel->reserve.is_on)
                return;
        kernel->reserve.is_on = false;
        n_reserved--;
        make_ordinary(kernel);
}

void cpu_reserve_take_over(struct kernel *kernel) {
        kernel->reserve.pid = find_pid(kernel);
        if (kernel->reserve.pid > 0)
                make_ordinary(kernel);
}
