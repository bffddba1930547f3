#include "session/maker_link.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fd.h"
#include "base/log.h"
#include "session/group_sweep.h"
#include "session/kernel_order.h"
#include "session/kernel_pool.h"
#include "session/network.h"
#include "session/serve_options.h"
#include "session/session.h"
#include "session/session_engine.h"
#include "spawn/kernel_files.h"
#include "store/reaper.h"

static void on_maker_died(struct session_manager *manager);
static int restart_maker(void *context, struct err *err);

static void note_nursery(struct session_manager *manager, const struct maker_nursery *news) {
        size_t i = manager->n_nurseries;
        for (size_t other = 0; other < manager->n_nurseries; other++) {
                if (strcmp(manager->nurseries[other].image, news->image) != 0)
                        continue;
                manager->nurseries[other].n_boxes_ready = news->n_boxes_ready; /* boxes are for both */
                if (manager->nurseries[other].light == news->light)
                        i = other;
        }
        if (i == MANAGER_NURSERIES_MAX)
                return;
        if (i == manager->n_nurseries)
                manager->n_nurseries++;
        if (manager->nurseries[i].state != news->state && news->state == NURSERY_DOWN)
                daemon_log("the %snursery of image %s is down (%s); kernels start cold until it is back",
                           news->light ? "light " : "", news->image, news->trouble);
        manager->nurseries[i] = *news;
}

/* A box whose kernel is no longer needed. */
static void discard_box(struct session_manager *manager, struct maker_reply *reply) {
        for (size_t i = 0; i < MAKER_FDS; i++)
                fd_close(&reply->fds[i]);
        if (!engine_is_native(reply->engine) && reply->good)
                reaper_remove_box(reply->engine, reply->group);
        else if (engine_is_native(reply->engine) && !reply->attached)
                (void) cgroup_destroy_by_name(&manager->host, reply->group, NULL);
}

static void take_kernel(struct session_manager *manager, struct kernel *kernel, struct maker_reply *reply) {
        struct err err;
        if (kernel_take(kernel, reply, &err) < 0) {
                manager->counters.kernels_failed++;
                kernel->listener->failed(kernel, &err);
                return;
        }
        *(kernel->fds[MAKER_KERNEL] >= 0 ? &manager->counters.kernels_forked : &manager->counters.kernels_cold) += 1;
        if (kernel->rules)
                network_connect(manager);
        for (struct session *session = manager->sessions; session; session = session->next)
                if (session->kernel == kernel && session_is_going(session))
                        kernel_kill(kernel);
}

static void on_maker(void *context, uint32_t events) {
        struct session_manager *manager = context;
        (void) events;
        struct maker_reply reply;
        struct err err;
        if (maker_receive(&manager->maker, &reply, &err) < 0) {
                on_maker_died(manager);
                return;
        }
        if (*reply.nursery.image)
                note_nursery(manager, &reply.nursery);
        if (!*reply.kernel_id)
                return;
        manager->n_ordered -= engine_is_native(reply.engine); /* the others are made beside the maker */
        kernel_order_send(manager);
        kernel_pool_refill(manager);
        struct kernel *kernel = manager_find_kernel(manager, reply.kernel_id);
        if (!kernel)
                discard_box(manager, &reply);
        else if (reply.attached)
                session_attached(kernel->owner, &reply);
        else
                take_kernel(manager, kernel, &reply);
}

enum { PATHS_MAX = 64 };

/* "DIR:DIR:…" as a NULL-terminated list, which is never freed; `also` is one more directory, or "" or NULL. */
static int split_paths(const char *text, const char *also, const char *ret_paths[static PATHS_MAX], struct err *err) {
        size_t n = 0;
        char *copy = strdup(text ? text : ""), *rest = copy, *path;
        while (copy && (path = strsep(&rest, ":"))) {
                if (!*path)
                        continue;
                if (*path != '/' || n == PATHS_MAX - 2) {
                        free(copy);
                        return err_set(err, ERR_USAGE, "allowed directories are absolute paths, at most %d",
                                       PATHS_MAX - 2);
                }
                ret_paths[n++] = path;
        }
        if (also && *also)
                ret_paths[n++] = also;
        ret_paths[n] = NULL;
        return copy ? 0 : err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
}

int maker_link_start(struct session_manager *manager, struct err *err) {
        static struct maker_settings settings;
        static char kernel_dir[4200];
        if (kernel_files_find(kernel_dir, sizeof(kernel_dir), err) < 0)
                return -1;
        static const char *read_paths[PATHS_MAX], *write_paths[PATHS_MAX], *key_write_paths[PATHS_MAX];
        if (split_paths(manager->options->allow_read, NULL, read_paths, err) < 0 ||
            split_paths(manager->options->allow_write, NULL, key_write_paths, err) < 0 ||
            split_paths(manager->options->allow_write, manager->options->project, write_paths, err) < 0)
                return -1;
        settings = (struct maker_settings) { .data_dir = manager->data_dir,
                                             .owner = manager->data_id,
                                             .engines = &manager->options->engines,
                                             .socket_path = manager->options->socket_path,
                                             .group_prefix = manager->group_prefix,
                                             .box_pool = manager->options->box_pool,
                                             .kernel_dir = kernel_dir,
                                             .read_paths = read_paths,
                                             .write_paths = write_paths,
                                             .key_write_paths = key_write_paths,
                                             .df_bytes = manager->options->df_bytes,
                                             .np_bytes = manager->options->np_bytes,
                                             .preload = manager_preload(manager) };
        manager->maker_settings = &settings;
        if (maker_start(&settings, &manager->maker, err) < 0)
                return -1;
        manager->maker_watch = loop_watch(manager->loop, manager->maker.fd, EPOLLIN, on_maker, manager);
        if (!manager->maker_watch) {
                maker_stop(&manager->maker);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        manager->helpers[HELPER_MAKER].start = restart_maker;
        helper_started(&manager->helpers[HELPER_MAKER], manager->maker.pid);
        return 0;
}

static int restart_maker(void *context, struct err *err) {
        struct session_manager *manager = context;
        if (maker_link_start(manager, err) < 0)
                return -1;
        kernel_order_send(manager); /* orders from the time without a maker */
        kernel_pool_refill(manager);
        return 0;
}

/* Kernels that the maker had not delivered are lost; the callers that wait for one get an error. */
static void on_maker_died(struct session_manager *manager) {
        struct err gone;
        loop_unwatch(&manager->maker_watch);
        maker_stop(&manager->maker);
        group_sweep(manager); /* of boxes that it had made and not delivered */
        manager->n_ordered = 0;
        helper_died(&manager->helpers[HELPER_MAKER]);
        (void) err_set(&gone, ERR_GONE, "the box was being made when its maker died; try again");
        bool again = true;
        while (again) {
                again = false;
                for (size_t i = 0; i < manager->n_pool && !again; i++)
                        if (manager->pool[i]->state == KERNEL_MAKING) {
                                manager->pool[i]->listener->failed(manager->pool[i], &gone);
                                again = true;
                        }
                for (struct session *session = manager->sessions; session && !again; session = session->next)
                        if (session->kernel && session->kernel->state == KERNEL_ATTACHING) {
                                session_attached(session,
                                                 &(struct maker_reply) { .err = gone, .fds[MAKER_WORKSPACE] = -1 });
                                again = true;
                        } else if (session->kernel && session->kernel->state == KERNEL_MAKING) {
                                session->kernel->listener->failed(session->kernel, &gone);
                                again = true;
                        }
        }
}

void maker_link_stop(struct session_manager *manager) {
        loop_unwatch(&manager->maker_watch);
        helper_retire(&manager->helpers[HELPER_MAKER]);
        maker_stop(&manager->maker);
}
