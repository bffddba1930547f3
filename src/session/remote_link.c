#include "session/remote_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fd.h"
#include "base/log.h"
#include "engine/instance_link.h"
#include "engine/remote_tunnel.h"
#include "session/manager.h"
#include "session/remote_place.h"
#include "session/serve_options.h"
#include "wire/message.h"

void remote_link_init(struct session_manager *manager) {
        manager->remote.tunnel = manager->remote.instances = HELPER_PROGRAM_DOWN;
        for (size_t i = 0; i < REMOTE_IDLE_MAX; i++)
                manager->remote.idle[i] = (struct remote_idle) { .manager = manager, .fd = -1 };
}

/* ---- at the start ---- */

static int read_notice(const struct message *message, struct err *err) {
        json_t *answer = json_loadb(message->bytes, message->size, 0, NULL), *error = json_object_get(answer, "error");
        const char *words = json_string_value(json_object_get(error, "message"));
        bool is_good = json_is_true(json_object_get(answer, "ok"));
        if (!is_good)
                (void) err_set(err, ERR_UNSUPPORTED, "engine remote is not there: %s",
                               words ? words : "its answer is not understood");
        json_decref(answer);
        return is_good ? 0 : -1;
}

int remote_link_probe(const struct session_manager *manager, struct err *err) {
        static const char ping[] = "{\"op\":\"ping\"}";
        const struct engine_settings *settings = &manager->options->engines;
        struct helper_program tunnel = HELPER_PROGRAM_DOWN;
        struct message_parser parser = message_parser_make(MESSAGE_FROM_DAEMON);
        struct message message;
        _cleanup_fd_ int fd = -1;
        const struct timeval limit = { .tv_sec = (time_t) (settings->remote_timeout_ms / 1000) + 1 };
        int code = remote_tunnel_start(settings, manager->data_dir, &tunnel, err);
        if (code == 0)
                code = remote_tunnel_connect(&tunnel, &fd, err);
        if (code == 0) {
                (void) fcntl(fd, F_SETFL, 0);
                (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
                int n = message_send(fd, MESSAGE_REQUEST, 1, ping, strlen(ping));
                n = n < 0 ? n : message_receive(fd, &parser, &message);
                code = n == 1 ? read_notice(&message, err)
                              : err_set(err, ERR_UNSUPPORTED, "engine remote is not there: %.200s does not answer",
                                        settings->remote_url);
        }
        message_parser_release(&parser);
        helper_program_stop(&tunnel);
        return code;
}

/* ---- the helpers ---- */

static void drop_helper(struct session_manager *manager, struct helper_program *program, struct loop_watch **watch,
                        enum manager_helper kind) {
        struct helper *helper = &manager->helpers[kind];
        loop_unwatch(watch);
        helper_program_stop(program);
        helper->pid = 0; /* the next request starts another */
        helper->n_restarts++;
        daemon_log("the helper \"%s\", which connects to other Gloveboxes, has died", helper->name);
}

static void on_tunnel_end(void *context, uint32_t events) {
        struct session_manager *manager = context;
        (void) events;
        drop_helper(manager, &manager->remote.tunnel, &manager->remote.watch, HELPER_REMOTE);
}

static void on_instances_end(void *context, uint32_t events) {
        struct session_manager *manager = context;
        (void) events;
        drop_helper(manager, &manager->remote.instances, &manager->remote.instances_watch, HELPER_INSTANCES);
}

static int start_helper(struct session_manager *manager, bool is_instance, struct err *err) {
        struct remote_link *link = &manager->remote;
        struct helper_program *program = is_instance ? &link->instances : &link->tunnel;
        struct loop_watch **watch = is_instance ? &link->instances_watch : &link->watch;
        const struct engine_settings *settings = &manager->options->engines;
        if (program->fd >= 0)
                return 0;
        if ((is_instance ? instance_link_start(settings, manager->maker_settings->kernel_dir, manager->data_dir,
                                               program, err)
                         : remote_tunnel_start(settings, manager->data_dir, program, err)) < 0)
                return -1;
        *watch = loop_watch(manager->loop, program->fd, EPOLLIN, is_instance ? on_instances_end : on_tunnel_end,
                            manager);
        if (!*watch) {
                helper_program_stop(program);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        helper_started(&manager->helpers[is_instance ? HELPER_INSTANCES : HELPER_REMOTE], program->pid);
        return 0;
}

/* ---- connections ---- */

static int let_go(struct remote_idle *idle) {
        int fd = idle->fd;
        loop_unwatch(&idle->watch);
        idle->fd = -1;
        return fd;
}

static void close_idle(struct remote_idle *idle) {
        int fd = let_go(idle);
        fd_close(&fd);
}

/* The other side has closed it, or sent a message without a request. */
static void on_idle(void *context, uint32_t events) {
        (void) events;
        close_idle(context);
}

int remote_link_take(struct session_manager *manager, const struct remote_place *place, int *ret_fd, bool *ret_is_fresh,
                     struct err *err) {
        for (size_t i = 0; i < REMOTE_IDLE_MAX; i++) {
                struct remote_idle *idle = &manager->remote.idle[i];
                struct pollfd polled = { .fd = idle->fd, .events = POLLIN };
                if (idle->fd < 0 || strcmp(idle->instance, place->order.name) != 0)
                        continue;
                int fd = let_go(idle);
                if (poll(&polled, 1, 0) == 0) {
                        *ret_fd = fd;
                        *ret_is_fresh = false;
                        return 0;
                }
                fd_close(&fd);
        }
        *ret_is_fresh = true;
        if (start_helper(manager, place->is_instance, err) < 0)
                return -1;
        return place->is_instance ? instance_link_connect(&manager->remote.instances, &place->order, ret_fd, err)
                                  : remote_tunnel_connect(&manager->remote.tunnel, ret_fd, err);
}

/* A free place, or that of the oldest connection to an instance. NULL: all are in use. */
static struct remote_idle *find_room(struct session_manager *manager, const struct remote_place *place) {
        struct remote_idle *room = NULL, *oldest = NULL;
        size_t n = 0;
        for (size_t i = 0; i < REMOTE_IDLE_MAX; i++) {
                struct remote_idle *idle = &manager->remote.idle[i];
                if (idle->fd < 0)
                        room = idle;
                else if (strcmp(idle->instance, place->order.name) == 0)
                        n++;
                else if (*idle->instance && (!oldest || idle->since_ms < oldest->since_ms))
                        oldest = idle;
        }
        if (n >= (place->is_instance ? REMOTE_IDLE_INSTANCE_MAX : REMOTE_IDLE_EACH_MAX))
                return NULL;
        if (!room && oldest)
                close_idle(oldest);
        return room ? room : oldest;
}

void remote_link_give(struct session_manager *manager, const struct remote_place *place, int fd) {
        struct remote_idle *idle = manager->draining || place->is_ephemeral ? NULL : find_room(manager, place);
        if (idle)
                idle->watch = loop_watch(manager->loop, fd, EPOLLIN, on_idle, idle);
        if (!idle || !idle->watch) {
                fd_close(&fd);
                return;
        }
        idle->fd = fd;
        idle->since_ms = loop_now_ms();
        memcpy(idle->instance, place->order.name, sizeof(idle->instance));
}

void remote_link_forget(struct session_manager *manager, const struct remote_place *place) {
        for (size_t i = 0; place->is_instance && i < REMOTE_IDLE_MAX; i++)
                if (manager->remote.idle[i].fd >= 0 && strcmp(manager->remote.idle[i].instance, place->order.name) == 0)
                        close_idle(&manager->remote.idle[i]);
}

void remote_link_stop(struct session_manager *manager) {
        for (size_t i = 0; i < REMOTE_IDLE_MAX; i++)
                if (manager->remote.idle[i].fd >= 0)
                        close_idle(&manager->remote.idle[i]);
        loop_unwatch(&manager->remote.watch);
        loop_unwatch(&manager->remote.instances_watch);
        helper_program_stop(&manager->remote.tunnel);
        helper_program_stop(&manager->remote.instances);
}
