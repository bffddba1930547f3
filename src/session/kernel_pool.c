/* The pool: kernels that wait, sealed and with their modules imported, for an ephemeral run that wants nothing special.
 * Each is used once. As many full ones, which have imported what is preloaded, are kept as light ones, which have not:
 * commands, and code whose caller says so, take a light one; other code takes a full one. */
#include <stdio.h>
#include <string.h>

#include "daemon/daemon.h"
#include "kernel/kernel.h"
#include "session/serve_options.h"

/* Most runs are over by then, and had the processors for themselves. */
enum { PAUSE_MS = 3 };

static const struct kernel_listener listener;

static void forget(struct kernel *kernel) {
        struct daemon *daemon = kernel->owner;
        for (size_t i = 0; i < daemon->n_pool; i++) {
                if (daemon->pool[i] == kernel) {
                        daemon->pool[i] = daemon->pool[--daemon->n_pool];
                        return;
                }
        }
}

static void on_ready(struct kernel *kernel) {
        (void) kernel;
        kernel_pool_refill(kernel->owner);
}

static void discard(struct kernel *kernel) {
        forget(kernel);
        kernel_free(kernel);
}

static void on_failed(struct kernel *kernel, const struct err *err) {
        daemon_log("pool: a kernel could not be made: %s", err->message);
        discard(kernel); /* not refilled at once: what failed now would fail again; the sweep tries later */
}

static void on_output(struct kernel *kernel) {
        (void) kernel;
}

static void on_frame(struct kernel *kernel, enum kernel_frame type, const struct kernel_reply *reply) {
        (void) type;
        (void) reply;
        kernel_kill(kernel);
}

static void on_ended(struct kernel *kernel) {
        daemon_log("pool: a waiting kernel died");
        discard(kernel);
}

static const struct kernel_listener listener = { on_ready, on_failed, on_output, on_frame, on_ended };

/* One at a time is on its way: the maker and the host have other things to do. */
static bool is_one_on_its_way(const struct daemon *daemon) {
        for (size_t i = 0; i < daemon->n_pool; i++)
                if (daemon->pool[i]->state != KERNEL_IDLE)
                        return true;
        return false;
}

static size_t count(const struct daemon *daemon, bool light) {
        size_t n = 0;
        for (size_t i = 0; i < daemon->n_pool; i++)
                n += daemon->pool[i]->light == light;
        return n;
}

size_t kernel_pool_wanted(const struct daemon *daemon, bool light) {
        uint64_t wanted = light && !*daemon_preload(daemon) ? 0 : daemon->options->pool;
        return wanted < DAEMON_POOL_MAX ? (size_t) wanted : DAEMON_POOL_MAX;
}

static bool is_short(const struct daemon *daemon, bool light) {
        return count(daemon, light) < kernel_pool_wanted(daemon, light);
}

void kernel_pool_refill(struct daemon *daemon) {
        struct err err;
        /* The kind that was taken last is the one that will be asked for next. */
        bool light = is_short(daemon, daemon->took_light) ? daemon->took_light : !daemon->took_light;
        struct registry_session row = { .limits = daemon->options->limits,
                                        .allow_weaker = daemon->options->allow_weaker };
        if (daemon->draining || !is_short(daemon, light) || is_one_on_its_way(daemon) ||
            daemon->n_orders + daemon->n_ordered > 0)
                return; /* those that somebody waits for come first; daemon.c calls again after the last of them */
        struct maker_request request;
        (void) snprintf(row.image, sizeof(row.image), "%s", daemon->options->image);
        daemon_fill_request(&row, &request);
        request.ephemeral = request.pooled = true;
        request.light = light;
        /* Only here: a kernel that somebody waits for imports what its code asks for, and nothing else. */
        (void) snprintf(request.preload, sizeof(request.preload), "%s", light ? "" : daemon_preload(daemon));
        if (daemon_name_kernel(daemon, &request, &err) < 0)
                return;
        struct kernel *kernel = kernel_make(daemon->loop, &daemon->host, &listener, daemon, &request);
        if (!kernel)
                return;
        daemon->pool[daemon->n_pool++] = kernel;
        if (daemon_order_kernel(daemon, &request, "", &err) < 0)
                on_failed(kernel, &err);
}

static void on_time(void *context) {
        struct daemon *daemon = context;
        daemon->pool_timer = NULL;
        kernel_pool_refill(daemon);
}

void kernel_pool_refill_soon(struct daemon *daemon) {
        if (!daemon->pool_timer && !daemon->draining)
                daemon->pool_timer = loop_timer(daemon->loop, loop_now_ms() + PAUSE_MS, on_time, daemon);
}

static bool is_plain(const struct daemon *daemon, const struct registry_session *row) {
        return strcmp(row->image, daemon->options->image) == 0 && !*row->options && !*row->workspace &&
               row->allow_weaker == daemon->options->allow_weaker && strcmp(row->mode, "fresh") != 0 &&
               memcmp(&row->limits, &daemon->options->limits, offsetof(struct limits, timeout_ms)) == 0 &&
               row->limits.tmp_bytes == daemon->options->limits.tmp_bytes &&
               row->limits.disk_bytes == daemon->options->limits.disk_bytes &&
               row->limits.disk_files == daemon->options->limits.disk_files;
}

struct kernel *kernel_pool_take(struct daemon *daemon, const struct registry_session *row, bool light) {
        struct kernel *found = NULL;
        if (!is_plain(daemon, row))
                return NULL;
        for (size_t i = 0; i < daemon->n_pool; i++) {
                struct kernel *kernel = daemon->pool[i];
                bool fits = kernel->light == light || (light && !found); /* a full one does what a light one does */
                if (kernel->state == KERNEL_IDLE && fits)
                        found = kernel;
        }
        daemon->took_light = light && kernel_pool_wanted(daemon, true) > 0;
        if (found)
                forget(found);
        return found;
}

size_t kernel_pool_ready(const struct daemon *daemon, bool light) {
        size_t n = 0;
        for (size_t i = 0; i < daemon->n_pool; i++)
                n += daemon->pool[i]->light == light && daemon->pool[i]->state == KERNEL_IDLE;
        return n;
}

void kernel_pool_empty(struct daemon *daemon) {
        loop_timer_drop(&daemon->pool_timer);
        while (daemon->n_pool)
                discard(daemon->pool[0]);
}
