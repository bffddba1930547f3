#include "http/server.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "http/conn_io.h"
#include "http/listener.h"

static void fill_in(unsigned *option, unsigned otherwise) {
        if (*option == 0)
                *option = otherwise;
}

static int copy_options(struct http_options *to, const struct http_options *from, struct err *err) {
        *to = *from;
        to->tcp_host = from->tcp_host ? strdup(from->tcp_host) : NULL;
        to->unix_path = from->unix_path ? strdup(from->unix_path) : NULL;
        fill_in(&to->connections_max, 1024);
        fill_in(&to->head_ms, 10 * 1000);
        fill_in(&to->idle_ms, 60 * 1000);
        fill_in(&to->body_window_ms, 10 * 1000);
        fill_in(&to->body_window_min, 10 * 1024);
        fill_in(&to->stall_ms, 30 * 1000);
        fill_in(&to->linger_ms, 2 * 1000);
        if ((from->tcp_host && !to->tcp_host) || (from->unix_path && !to->unix_path))
                return err_set(err, ERR_SYSTEM, "out of memory");
        return 0;
}

int http_server_open(struct loop *loop, const struct http_options *options, const struct http_handler *handler,
                     struct http_server **ret_server, struct err *err) {
        struct http_server *server = calloc(1, sizeof(*server));
        if (!server)
                return err_set(err, ERR_SYSTEM, "out of memory");
        server->loop = loop;
        server->handler = *handler;
        server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        server->scratch = malloc(HTTP_READ_SIZE);
        int code = copy_options(&server->options, options, err);
        if (code == 0 && (!server->scratch || server->reserve_fd < 0))
                code = err_set(err, ERR_SYSTEM, "out of memory or descriptors");
        if (code == 0)
                code = http_listeners_open(server, err);
        if (code < 0) {
                http_server_close(server);
                return -1;
        }
        *ret_server = server;
        return 0;
}

void http_server_close(struct http_server *server) {
        if (!server)
                return;
        http_listeners_close(server);
        while (server->links)
                http_conn_io_close(server->links);
        loop_timer_drop(&server->drained_timer);
        fd_close(&server->reserve_fd);
        free(server->scratch);
        free((void *) (uintptr_t) server->options.tcp_host);
        free((void *) (uintptr_t) server->options.unix_path);
        free(server);
}

static void report_drained(void *context) {
        struct http_server *server = context;
        server->drained_timer = NULL;
        if (server->on_drained)
                server->on_drained(server->drained_context);
}

static void look_if_drained(struct http_server *server) {
        if (server->is_draining && !server->links && !server->drained_timer)
                server->drained_timer = loop_timer(server->loop, 0, report_drained, server);
}

void http_server_forget(struct http_server *server, struct http_conn_io *link) {
        if (link->previous)
                link->previous->next = link->next;
        else
                server->links = link->next;
        if (link->next)
                link->next->previous = link->previous;
        server->counters.open--;
        look_if_drained(server);
}

void http_server_drain(struct http_server *server, void (*on_drained)(void *context), void *context) {
        if (server->is_draining)
                return;
        server->is_draining = true;
        server->on_drained = on_drained;
        server->drained_context = context;
        http_listeners_close(server);
        for (struct http_conn_io *link = server->links; link; link = link->next)
                http_conn_io_drain(link);
        look_if_drained(server);
}

uint16_t http_server_port(const struct http_server *server) {
        return http_listeners_port(server);
}

uint64_t http_server_queued(const struct http_server *server, const char *holder) {
        uint64_t n = 0;
        for (const struct http_conn_io *link = server->links; link; link = link->next)
                if (!holder || strcmp(link->connection.holder, holder) == 0)
                        n += http_out_size(&link->connection.out);
        return n;
}

uint64_t http_server_collected(const struct http_server *server, const char *holder) {
        uint64_t n = 0;
        for (const struct http_conn_io *link = server->links; link; link = link->next)
                if (!holder || strcmp(link->connection.holder, holder) == 0)
                        n += link->connection.collected;
        return n;
}

const struct http_counters *http_server_counters(const struct http_server *server) {
        return &server->counters;
}
