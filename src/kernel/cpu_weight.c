#include "kernel/cpu_weight.h"

#include <unistd.h>

#include "base/loop.h"
#include "base/priority.h"
#include "kernel/cpu_reserve.h"
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
        SHARE_MS = 1000,  /* how often the share of all boxes is looked at while they are idle together */
        SHARE_PARTS = 20, /* if they have less than this part of the processors that they could use, */
        FAIR_MS = 3000,   /* they are ordinary for so long */
};

static struct kernel *watched;
static struct loop_timer *timer; /* while there are any */
static bool is_busy; /* a box computes: others may have to wait for a processor */

/* All boxes together, against the rest of the host. */
static struct {
        const struct cgroup_host *host; /* while they are idle, else NULL */
        uint64_t since_ms, used_us;     /* of this look at their share */
        uint64_t fair_until_ms;
} together;

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

/* Returns the processor time that it has used since the last look. */
static uint64_t look_at_kernel(struct kernel *kernel) {
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
                return used_us;
        weight->written = wanted;
        cgroup_set_weight(&kernel->cgroup, wanted);
        return used_us;
}

/* Keeps its weight, because the next request is usually like the last ones. */
static bool is_at_rest(const struct kernel *kernel) {
        return !is_working(kernel) && kernel->weight.open_us == 0 && !kernel->reserve.is_on;
}

static void set_together(const struct cgroup_host *host) {
        if (together.host == host)
                return;
        cgroup_host_set_idle(host ? host : together.host, host);
        together.host = host;
        together.since_ms = loop_now_ms();
        together.used_us = 0;
}

/* True if other processes of the host leave next to nothing to n_long boxes that compute. */
static bool is_starved(unsigned n_long, uint64_t used_us) {
        uint64_t passed_ms = loop_now_ms() - together.since_ms;
        together.used_us += used_us;
        if (passed_ms < SHARE_MS)
                return false;
        uint64_t n_processors = (uint64_t) sysconf(_SC_NPROCESSORS_ONLN);
        uint64_t could_us = (n_long < n_processors ? n_long : n_processors) * passed_ms * 1000;
        bool is_little = together.used_us < could_us / SHARE_PARTS;
        together.since_ms += passed_ms;
        together.used_us = 0;
        return is_little;
}

/* While short and long requests compete, the common group of all boxes is idle, too. Otherwise the clients of the short
 * ones, and the daemon, would wait for its turns. Short requests have reserved processor time; without it they would
 * come after everything else on the host. */
static void weigh_together(const struct cgroup_host *host, unsigned n_long, uint64_t used_us) {
        uint64_t now_ms = loop_now_ms();
        if (together.host && is_starved(n_long, used_us))
                together.fair_until_ms = now_ms + FAIR_MS;
        bool is_idle = n_long > 0 && now_ms - short_at_ms < OTHERS_MS && now_ms >= together.fair_until_ms &&
                       cpu_reserve_is_possible();
        set_together(is_idle ? host : NULL);
}

static void cpu_weight_on_time(void *context) {
        struct loop *loop = context;
        const struct cgroup_host *host = NULL;
        unsigned n_of_last_level = 0, n_long = 0;
        uint64_t used_us = 0;
        timer = NULL;
        is_busy = false;
        for (struct kernel **at = &watched; *at;) {
                struct kernel *kernel = *at;
                used_us += look_at_kernel(kernel);
                cpu_reserve_look_at(kernel);
                host = kernel->cgroup.host;
                n_of_last_level += kernel->weight.level == LEVEL_MAX;
                if (!is_at_rest(kernel)) {
                        is_busy = is_busy || kernel->weight.level >= BUSY_LEVEL;
                        n_long += kernel->weight.level >= IDLE_LEVEL;
                        at = &kernel->weight.next;
                } else {
                        *at = kernel->weight.next;
                        kernel->weight.is_watched = false;
                }
        }
        n_longest = n_of_last_level;
        priority_adapt(is_busy);
        weigh_together(host, n_long, used_us);
        if (watched)
                timer = loop_timer(loop, loop_now_ms() + LOOK_MS, cpu_weight_on_time, loop);
}

void cpu_weight_begin(struct kernel *kernel) {
        kernel->weight.n_requests++;
        if (kernel->weight.level < BUSY_LEVEL) {
                short_at_ms = loop_now_ms();
                /* One that cannot be had must not come after everything else. A kernel of one run is not worth it. */
                if (is_busy && !kernel->ephemeral && !cpu_reserve_begin(kernel))
                        together.fair_until_ms = short_at_ms + FAIR_MS;
        }
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
        if (watched)
                return;
        loop_timer_drop(&timer);
        set_together(NULL);
        is_busy = false;
        priority_adapt(false);
}
