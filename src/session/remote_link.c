#include "session/remote_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fd.h"
#include "session/manager.h"
#include "session/serve_options.h"
#include "wire/message.h"

void remote_link_init(struct session_manager *manager) {
        manager->remote.tunnel = HELPER_PROGRAM_DOWN;
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
        int code = tunnel_start(settings, manager->data_dir, &tunnel, err);
        if (code == 0)
                code = tunnel_connect(&tunnel, &fd, err);
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

/* ---- the helper ---- */

static void on_helper_end(void *context, uint32_t events) {
        struct session_manager *manager = context;
        struct helper *helper = &manager->helpers[HELPER_REMOTE];
        (void) events;
        loop_unwatch(&manager->remote.watch);
        helper_program_stop(&manager->remote.tunnel);
        helper->pid = 0; /* the next request starts another */
        helper->n_restarts++;
        daemon_log("the helper that connects to the remote has died");
}

static int start_helper(struct session_manager *manager, struct err *err) {
        struct remote_link *link = &manager->remote;
        if (link->tunnel.fd >= 0)
                return 0;
        if (tunnel_start(&manager->options->engines, manager->data_dir, &link->tunnel, err) < 0)
                return -1;
        link->watch = loop_watch(manager->loop, link->tunnel.fd, EPOLLIN, on_helper_end, manager);
        if (!link->watch) {
                helper_program_stop(&link->tunnel);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        helper_started(&manager->helpers[HELPER_REMOTE], link->tunnel.pid);
        return 0;
}

/* ---- connections ---- */

static int let_go(struct remote_idle *idle) {
        int fd = idle->fd;
        loop_unwatch(&idle->watch);
        idle->fd = -1;
        return fd;
}

/* The remote has closed it, or sent something that was not requested. */
static void on_idle(void *context, uint32_t events) {
        struct remote_idle *idle = context;
        (void) events;
        int fd = let_go(idle);
        fd_close(&fd);
}

int remote_link_take(struct session_manager *manager, int *ret_fd, bool *ret_is_fresh, struct err *err) {
        for (size_t i = 0; i < REMOTE_IDLE_MAX; i++) {
                struct remote_idle *idle = &manager->remote.idle[i];
                struct pollfd polled = { .fd = idle->fd, .events = POLLIN };
                if (idle->fd < 0)
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
        return start_helper(manager, err) < 0 ? -1 : tunnel_connect(&manager->remote.tunnel, ret_fd, err);
}

void remote_link_give(struct session_manager *manager, int fd) {
        for (size_t i = 0; i < REMOTE_IDLE_MAX && !manager->draining; i++) {
                struct remote_idle *idle = &manager->remote.idle[i];
                if (idle->fd >= 0)
                        continue;
                idle->watch = loop_watch(manager->loop, fd, EPOLLIN, on_idle, idle);
                if (!idle->watch)
                        break;
                idle->fd = fd;
                return;
        }
        fd_close(&fd);
}

void remote_link_stop(struct session_manager *manager) {
        for (size_t i = 0; i < REMOTE_IDLE_MAX; i++)
                if (manager->remote.idle[i].fd >= 0) {
                        int fd = let_go(&manager->remote.idle[i]);
                        fd_close(&fd);
                }
        loop_unwatch(&manager->remote.watch);
        helper_program_stop(&manager->remote.tunnel);
}
