#include "base/priority.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

enum {
        NICE_FIRST = -10,
        NICE_LAST = 19, /* together, dozens of them weigh less than the boxes */
        SLICE_NS = 100 * 1000, /* the shortest that Linux lets a task ask for (6.12; older ones ignore it) */
        IO_CLASS_SHIFT = 13,
        IO_BEST_EFFORT = 2,
        IO_LOWEST = 7,
        IO_WHO_PROCESS = 1,
};

/* As in <linux/sched/types.h>, which cannot be included beside <sched.h>. */
struct schedule {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
};

static bool serves_first, stays_alert, is_batch;

static int take_place(uint32_t policy, int nice_value) {
        struct schedule place = { .size = sizeof(place), .policy = policy, .flags = 1 /* SCHED_FLAG_RESET_ON_FORK */,
                                  .nice = nice_value, .runtime = SLICE_NS };
        return syscall(SYS_sched_setattr, 0, &place, 0) < 0 ? -errno : 0;
}

static void place_self(uint32_t policy) {
        if (take_place(policy, NICE_FIRST) < 0)
                (void) take_place(policy, getpriority(PRIO_PROCESS, 0)); /* no better one may be had */
}

/* Where nobody made control groups for processors, Linux schedules whole sessions (setsid) against each other. */
static void set_autogroup(int nice_value) {
        char text[16];
        int size = snprintf(text, sizeof(text), "%d", nice_value);
        _cleanup_fd_ int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
                (void) fd_write_all(fd, text, (size_t) size);
}

void priority_serve_first(void) {
        serves_first = true;
        is_batch = false;
        place_self(SCHED_OTHER);
        if (getsid(0) == getpid()) /* nobody else's session: a shell would come along */
                set_autogroup(NICE_FIRST);
        priority_adapt(false);
}

void priority_adapt(bool is_busy) {
        bool batch = !is_busy && !stays_alert;
        if (!serves_first || batch == is_batch)
                return;
        is_batch = batch;
        place_self(batch ? SCHED_BATCH : SCHED_OTHER);
}

void priority_stay_alert(void) {
        stays_alert = true;
        priority_adapt(true);
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
