/* The pool: kernels that wait, sealed and with their modules imported, for an ephemeral run with the usual image.
 * Limits of control groups are set, and a workspace, data or a script is mounted, when the run takes its box. Each is
 * used once. It keeps as many full ones (the preloaded modules are imported) as light ones (they are not;
 * kernel/kernel_choice.h). */
#include "session/kernel_pool.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "box/cgroup/cgroup.h"
#include "kernel/kernel.h"
#include "session/kernel_order.h"
#include "session/manager.h"
#include "session/serve_options.h"

/* For this time a run has the processors for itself. The supervisor is free, too: it cannot report the end of a command
 * while it clones a box. If the run ends earlier, the next kernel is made then. */
enum { PAUSE_MS = 25 };

static const struct kernel_listener listener;

static void kernel_pool_forget(struct kernel *kernel) {
        struct session_manager *manager = kernel->owner;
        for (size_t i = 0; i < manager->n_pool; i++) {
                if (manager->pool[i] == kernel) {
                        manager->pool[i] = manager->pool[--manager->n_pool];
                        return;
                }
        }
}

static void on_ready(struct kernel *kernel) {
        (void) kernel;
        kernel_pool_refill(kernel->owner);
}

static void kernel_pool_discard(struct kernel *kernel) {
        kernel_pool_forget(kernel);
        kernel_free(kernel);
}

static void on_failed(struct kernel *kernel, const struct err *err) {
        daemon_log("pool: a kernel could not be made: %s", err->message);
        kernel_pool_discard(kernel); /* not refilled at once: it would fail again; the sweep tries later */
}

static void kernel_pool_on_output(struct kernel *kernel) {
        (void) kernel;
}

static void on_frame(struct kernel *kernel, enum kernel_frame type, const struct kernel_reply *reply) {
        (void) type;
        (void) reply;
        kernel_kill(kernel);
}

static void on_ended(struct kernel *kernel) {
        daemon_log("pool: a waiting kernel died");
        kernel_pool_discard(kernel);
}

static const struct kernel_listener listener = { on_ready, on_failed, kernel_pool_on_output, on_frame, on_ended };

/* One is made at a time, so that the maker and the host have time for other work. */
static bool is_one_on_its_way(const struct session_manager *manager) {
        for (size_t i = 0; i < manager->n_pool; i++)
                if (manager->pool[i]->state != KERNEL_IDLE)
                        return true;
        return false;
}

static size_t kernel_pool_count(const struct session_manager *manager, bool light) {
        size_t n = 0;
        for (size_t i = 0; i < manager->n_pool; i++)
                n += manager->pool[i]->light == light;
        return n;
}

size_t kernel_pool_wanted(const struct session_manager *manager, bool light) {
        const struct session_engine *engine = &manager->engine;
        if (engine->is_instance || strcmp(engine->name, ENGINE_REMOTE) == 0)
                return 0; /* boxes are not made here */
        uint64_t wanted = light && !*manager_preload(manager) ? 0 : manager->options->pool;
        return wanted < MANAGER_POOL_MAX ? (size_t) wanted : MANAGER_POOL_MAX;
}

static bool is_short(const struct session_manager *manager, bool light) {
        return kernel_pool_count(manager, light) < kernel_pool_wanted(manager, light);
}

static const char *plain_image(const struct session_manager *manager, const char *plain_options) {
        return *plain_options ? engine_image_of(&manager->options->engines, manager->engine.name)
                              : manager->options->image;
}

void kernel_pool_refill(struct session_manager *manager) {
        struct err err;
        /* The next request is probably for the kind that was taken last. */
        bool light = is_short(manager, manager->took_light) ? manager->took_light : !manager->took_light;
        struct registry_session row = { .limits = manager->options->limits,
                                        .allow_weaker = manager->options->allow_weaker };
        if (manager->draining || !is_short(manager, light) || is_one_on_its_way(manager) ||
            manager->n_orders + manager->n_ordered > 0)
                return; /* kernels for waiting callers come first; daemon.c calls again after the last of them */
        struct maker_request request;
        session_engine_plain_options(manager, row.options, sizeof(row.options));
        (void) snprintf(row.image, sizeof(row.image), "%s", plain_image(manager, row.options));
        kernel_order_fill(&row, &request);
        request.ephemeral = request.pooled = true;
        request.light = light;
        /* Only here: a kernel with a waiting caller imports only what its code imports. */
        (void) snprintf(request.preload, sizeof(request.preload), "%s", light ? "" : manager_preload(manager));
        if (kernel_order_name(manager, &request, &err) < 0)
                return;
        struct kernel *kernel = kernel_make(manager->loop, &manager->host, &listener, manager, &request);
        if (!kernel)
                return;
        manager->pool[manager->n_pool++] = kernel;
        if (kernel_order_place(manager, &request, "", &err) < 0)
                on_failed(kernel, &err);
}

static void kernel_pool_on_time(void *context) {
        struct session_manager *manager = context;
        manager->pool_timer = NULL;
        kernel_pool_refill(manager);
}

void kernel_pool_refill_soon(struct session_manager *manager) {
        if (!manager->pool_timer && !manager->draining)
                manager->pool_timer = loop_timer(manager->loop, loop_now_ms() + PAUSE_MS, kernel_pool_on_time, manager);
}

void kernel_pool_run_ended(struct session_manager *manager) {
        if (!manager->pool_timer)
                return;
        loop_timer_drop(&manager->pool_timer);
        manager->pool_timer = loop_timer(manager->loop, loop_now_ms(), kernel_pool_on_time, manager);
}

enum shown { SHOWS_NOTHING, SHOWS_LATE, SHOWS_MORE };

/* The mounts of a run that a plain box lacks: those that can be added to a ready box (box/late_mounts.h), and
 * others. */
static enum shown kind_shown(const struct registry_session *row) {
        static const char *const late[] = { "data", "script", "script_at" };
        json_t *options = *row->options ? json_loads(row->options, 0, NULL) : json_object(), *value;
        const char *name;
        enum shown shows = *row->workspace ? SHOWS_LATE : SHOWS_NOTHING;
        json_object_foreach (options, name, value) {
                bool is_late = false;
                for (size_t i = 0; i < ELEMENTS(late); i++)
                        is_late |= strcmp(name, late[i]) == 0;
                enum shown kind = strcmp(name, "operator") == 0 ? SHOWS_NOTHING : is_late ? SHOWS_LATE : SHOWS_MORE;
                shows = kind > shows ? kind : shows;
        }
        if (!options)
                shows = SHOWS_MORE;
        json_decref(options);
        return shows;
}

bool kernel_pool_has_to_show(const struct registry_session *row) {
        return session_engine_is_native(row) && kind_shown(row) != SHOWS_NOTHING;
}

/* Memory, processes and the share of processors are bounded by control groups alone, and are changed when the box is
 * taken. The other limits are part of its mounts, and the number of processors is visible to code from the start. */
static bool fits_limits(const struct session_manager *manager, const struct limits *limits) {
        const struct limits *ready = &manager->options->limits;
        return limits_visible_processors(limits) == limits_visible_processors(ready) &&
               limits->tmp_bytes == ready->tmp_bytes && limits->disk_bytes == ready->disk_bytes &&
               limits->disk_files == ready->disk_files;
}

static bool has_other_groups(const struct session_manager *manager, const struct limits *limits) {
        const struct limits *ready = &manager->options->limits;
        return limits->memory_bytes != ready->memory_bytes || limits->pids != ready->pids ||
               limits->cpu_thousandths != ready->cpu_thousandths;
}

int kernel_pool_limit(const struct session_manager *manager, const struct kernel *kernel, const struct limits *limits,
                      struct err *err) {
        struct cgroup_usage usage = { 0 };
        if (!has_other_groups(manager, limits))
                return 0;
        cgroup_read_usage(&kernel->cgroup, &usage);
        if (limits->memory_bytes / 2 < usage.memory_now_bytes) /* a box that is made for the run starts with less */
                return err_set(err, ERR_LIMIT, "a kernel of the pool uses too much memory for this run");
        return cgroup_change_limits(&kernel->cgroup, limits, err);
}

/* A host that cannot enforce every limit by groups has rlimits for some, which are set when a box is made. */
static bool can_change_groups(const struct session_manager *manager) {
        for (size_t i = 0; i < CGROUP_CONTROLLERS; i++)
                if (!manager->host.usable[i])
                        return false;
        return true;
}

static bool is_same_box(const struct session_manager *manager, const struct registry_session *row,
                        const char *plain_options) {
        bool is_native = !*plain_options;
        return strcmp(row->image, plain_image(manager, plain_options)) == 0 &&
               session_engine_is_native(row) == is_native && row->allow_weaker == manager->options->allow_weaker &&
               strcmp(row->mode, "fresh") != 0 && fits_limits(manager, &row->limits) &&
               (!has_other_groups(manager, &row->limits) || (is_native && can_change_groups(manager)));
}

struct kernel *kernel_pool_take(struct session_manager *manager, const struct registry_session *row, bool light) {
        struct kernel *found = NULL;
        char options[sizeof(row->options)]; /* of a run without options */
        session_engine_plain_options(manager, options, sizeof(options));
        enum shown shows = strcmp(row->options, options) == 0 && !*row->workspace ? SHOWS_NOTHING : kind_shown(row);
        if (!is_same_box(manager, row, options) || shows == SHOWS_MORE)
                return NULL;
        for (size_t i = 0; i < manager->n_pool; i++) {
                struct kernel *kernel = manager->pool[i];
                bool fits = (shows == SHOWS_NOTHING || kernel_can_attach(kernel)) &&
                            (kernel->light == light || (light && !found)); /* a full one does what a light one does */
                if (kernel->state == KERNEL_IDLE && fits)
                        found = kernel;
        }
        manager->took_light = light && kernel_pool_wanted(manager, true) > 0;
        if (found)
                kernel_pool_forget(found);
        return found;
}

size_t kernel_pool_ready(const struct session_manager *manager, bool light) {
        size_t n = 0;
        for (size_t i = 0; i < manager->n_pool; i++)
                n += manager->pool[i]->light == light && manager->pool[i]->state == KERNEL_IDLE;
        return n;
}

void kernel_pool_empty(struct session_manager *manager) {
        loop_timer_drop(&manager->pool_timer);
        while (manager->n_pool)
                kernel_pool_discard(manager->pool[0]);
}
