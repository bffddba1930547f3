#include "base/priority.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

enum {
        NICE_FIRST = -10,
        NICE_LAST = 19, /* together, dozens of them weigh less than the boxes */
        IO_CLASS_SHIFT = 13,
        IO_BEST_EFFORT = 2,
        IO_LOWEST = 7,
        IO_WHO_PROCESS = 1,
};

static bool serves_first, stays_alert;
static int policy; /* that it has */

static void set_policy(int wanted) {
        const struct sched_param first = { .sched_priority = 1 }, none = { 0 };
        policy = wanted;
        if (wanted != SCHED_RR || sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first) < 0)
                (void) sched_setscheduler(0, (wanted == SCHED_RR ? SCHED_OTHER : wanted) | SCHED_RESET_ON_FORK, &none);
}

/* Without control groups for processors, Linux schedules whole sessions (setsid) against each other. */
static void set_autogroup(int nice_value) {
        char text[16];
        int size = snprintf(text, sizeof(text), "%d", nice_value);
        _cleanup_fd_ int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
                (void) fd_write_all(fd, text, (size_t) size);
}

void priority_serve_first(void) {
        serves_first = true;
        set_policy(SCHED_OTHER);
        (void) setpriority(PRIO_PROCESS, 0, NICE_FIRST);
        if (getsid(0) == getpid()) /* only in a session of its own: a shell would be moved too */
                set_autogroup(NICE_FIRST);
        priority_adapt(false);
}

void priority_adapt(bool is_busy) {
        int wanted = is_busy ? SCHED_RR : stays_alert ? SCHED_OTHER : SCHED_BATCH;
        if (serves_first && wanted != policy)
                set_policy(wanted);
}

void priority_stay_alert(void) {
        stays_alert = true;
        priority_adapt(false);
}

void priority_stand_apart(void) {
        serves_first = false;
        (void) setsid();
}

void priority_stand_back(void) {
        priority_stand_apart();
        (void) setpriority(PRIO_PROCESS, 0, NICE_LAST);
        set_autogroup(NICE_LAST);
        (void) syscall(SYS_ioprio_set, IO_WHO_PROCESS, 0, IO_BEST_EFFORT << IO_CLASS_SHIFT | IO_LOWEST);
}
