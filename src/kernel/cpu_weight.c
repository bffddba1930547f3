#include "kernel/cpu_weight.h"

#include "base/loop.h"
#include "base/priority.h"
#include "kernel/kernel.h"

enum {
        LOOK_MS = 50,
        SHORT_US = 2000, /* of a request: up to this a box has its full weight; twice as much halves it, and so on */
        LEVEL_MAX = 6,
        BUSY_LEVEL = 2, /* of one box: then others may have to wait for a processor */
};

static struct kernel *watched;
static struct loop_timer *timer; /* while there are any */

static unsigned level_of(uint64_t cost_us) {
        unsigned level = 0;
        for (; cost_us > SHORT_US && level < LEVEL_MAX; cost_us /= 2)
                level++;
        return level;
}

static bool is_working(const struct kernel *kernel) {
        return kernel->state == KERNEL_BUSY || kernel->state == KERNEL_STARTING;
}

static void look_at_kernel(struct kernel *kernel) {
        struct cpu_weight *weight = &kernel->weight;
        uint64_t cpu_us = cgroup_meter_read_cpu(&kernel->meter);
        uint64_t used_us = weight->cpu_us && cpu_us > weight->cpu_us ? cpu_us - weight->cpu_us : 0;
        weight->cpu_us = cpu_us;
        if (weight->n_requests > 0) { /* the one that was open has ended, and as many have begun */
                uint64_t each_us = (weight->open_us + used_us) / weight->n_requests;
                weight->each_us = (weight->each_us + each_us) / 2;
                weight->open_us = 0;
        } else
                weight->open_us = used_us > 0 || is_working(kernel) ? weight->open_us + used_us : weight->open_us / 2;
        weight->n_requests = 0;
        unsigned level = level_of(weight->open_us > weight->each_us ? weight->open_us : weight->each_us);
        if (level == weight->level)
                return;
        weight->level = level;
        cgroup_set_weight(&kernel->cgroup, CGROUP_WEIGHT_FULL >> level);
}

/* Its weight stays: the next request is like the last ones, as a rule. */
static bool is_at_rest(const struct kernel *kernel) {
        return !is_working(kernel) && kernel->weight.open_us == 0;
}

static void on_time(void *context) {
        struct loop *loop = context;
        bool is_busy = false;
        timer = NULL;
        for (struct kernel **at = &watched; *at;) {
                struct kernel *kernel = *at;
                look_at_kernel(kernel);
                is_busy = is_busy || kernel->weight.level >= BUSY_LEVEL;
                if (is_at_rest(kernel)) {
                        *at = kernel->weight.next;
                        kernel->weight.is_watched = false;
                } else
                        at = &kernel->weight.next;
        }
        priority_adapt(is_busy);
        if (watched)
                timer = loop_timer(loop, loop_now_ms() + LOOK_MS, on_time, loop);
}

void cpu_weight_begin(struct kernel *kernel) {
        kernel->weight.n_requests++;
        cpu_weight_watch(kernel);
}

void cpu_weight_watch(struct kernel *kernel) {
        if (kernel->weight.is_watched || !kernel->cgroup.host)
                return;
        kernel->weight.is_watched = true;
        kernel->weight.next = watched;
        watched = kernel;
        if (!timer)
                timer = loop_timer(kernel->loop, loop_now_ms() + LOOK_MS, on_time, kernel->loop);
}

void cpu_weight_forget(struct kernel *kernel) {
        for (struct kernel **at = &watched; *at; at = &(*at)->weight.next)
                if (*at == kernel) {
                        *at = kernel->weight.next;
                        break;
                }
        kernel->weight.is_watched = false;
        if (!watched)
                loop_timer_drop(&timer);
}
