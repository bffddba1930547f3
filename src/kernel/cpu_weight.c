#include "kernel/cpu_weight.h"

#include "base/loop.h"
#include "base/priority.h"
#include "kernel/kernel.h"

enum {
        LOOK_MS = 50,
        SHORT_US = 2000, /* of a request: up to this a box has its full weight; twice as much halves it, and so on */
        LEVEL_MAX = 6,
        BUSY_LEVEL = 2, /* of one box: then others may have to wait for a processor */
        LONG_TOGETHER = 128, /* the weight of all boxes of the last level together, however many there are */
        WEIGHT_MIN = 2,
        IDLE_LEVEL = 3,
        OTHERS_MS = 5000, /* so long after a request to a box that answers at once, those that compute are idle */
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

static unsigned n_longest; /* boxes of the last level, when they were counted last */
static uint64_t short_at_ms; /* when a box that answers at once was asked last */

static unsigned weight_of(unsigned level) {
        if (level >= IDLE_LEVEL && loop_now_ms() - short_at_ms < OTHERS_MS)
                return CGROUP_WEIGHT_IDLE;
        unsigned weight = CGROUP_WEIGHT_FULL >> level;
        if (level == LEVEL_MAX && n_longest > 0 && LONG_TOGETHER / n_longest < weight)
                weight = LONG_TOGETHER / n_longest;
        return weight < WEIGHT_MIN ? WEIGHT_MIN : weight;
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
        unsigned wanted = weight_of(level);
        bool is_known = weight->level != CPU_WEIGHT_UNKNOWN;
        weight->level = level;
        if (is_known && wanted == (weight->written ? weight->written : CGROUP_WEIGHT_FULL))
                return;
        weight->written = wanted;
        cgroup_set_weight(&kernel->cgroup, wanted);
}

/* Keeps its weight, because the next request is usually like the last ones. */
static bool is_at_rest(const struct kernel *kernel) {
        return !is_working(kernel) && kernel->weight.open_us == 0;
}

static void cpu_weight_on_time(void *context) {
        struct loop *loop = context;
        bool is_busy = false;
        unsigned n_of_last_level = 0;
        timer = NULL;
        for (struct kernel **at = &watched; *at;) {
                struct kernel *kernel = *at;
                look_at_kernel(kernel);
                is_busy = is_busy || kernel->weight.level >= BUSY_LEVEL;
                n_of_last_level += kernel->weight.level == LEVEL_MAX;
                if (is_at_rest(kernel)) {
                        *at = kernel->weight.next;
                        kernel->weight.is_watched = false;
                } else
                        at = &kernel->weight.next;
        }
        n_longest = n_of_last_level;
        priority_adapt(is_busy);
        if (watched)
                timer = loop_timer(loop, loop_now_ms() + LOOK_MS, cpu_weight_on_time, loop);
}

void cpu_weight_begin(struct kernel *kernel) {
        kernel->weight.n_requests++;
        if (kernel->weight.level < BUSY_LEVEL)
                short_at_ms = loop_now_ms();
        cpu_weight_watch(kernel);
}

void cpu_weight_watch(struct kernel *kernel) {
        if (kernel->weight.is_watched || !kernel->cgroup.host)
                return;
        kernel->weight.is_watched = true;
        kernel->weight.next = watched;
        watched = kernel;
        if (!timer)
                timer = loop_timer(kernel->loop, loop_now_ms() + LOOK_MS, cpu_weight_on_time, kernel->loop);
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
