#include "http/conn_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"

enum { ROUNDS_PER_TURN = 8 }; /* of "send, then let the stream write more", before others get their turn */

static struct http_conn_io *link_of(struct http_connection *connection) {
        return (struct http_conn_io *) connection;
}

static bool has_input(const struct http_conn_io *link) {
        return link->input_end > link->input_start;
}

bool http_conn_io_is_idle(const struct http_conn_io *link) {
        return link->connection.phase == PHASE_IDLE && !has_input(link) && http_out_size(&link->connection.out) == 0;
}

bool http_conn_io_is_unproven(const struct http_conn_io *link) {
        const struct http_connection *connection = &link->connection;
        return (connection->phase == PHASE_IDLE && connection->n_requests == 0) ||
               (connection->phase == PHASE_HEAD && connection->n_requests == 1);
}

void http_conn_io_close(struct http_conn_io *link) {
        http_connection_abandon(&link->connection);
        loop_timer_drop(&link->turn);
        loop_timer_drop(&link->timer);
        loop_unwatch(&link->watch);
        fd_close(&link->fd);
        http_server_forget(link->server, link);
        http_connection_free(&link->connection);
        free(link->input);
        free(link);
}

/* ---- bytes in ---- */

static void drop_input(struct http_conn_io *link) {
        free(link->input);
        link->input = NULL;
        link->input_start = link->input_end = 0;
}

static void feed_kept_input(struct http_conn_io *link) {
        size_t size = link->input_end - link->input_start;
        link->input_start +=
                http_connection_feed(&link->connection, link->input ? link->input + link->input_start : "", size);
        if (!has_input(link))
                drop_input(link);
}

static void keep_input(struct http_conn_io *link, const char *bytes, size_t size) {
        link->input = malloc(size);
        if (!link->input) {
                http_connection_abandon(&link->connection);
                return;
        }
        memcpy(link->input, bytes, size);
        link->input_start = 0;
        link->input_end = size;
}

static void read_socket(struct http_conn_io *link) {
        struct http_connection *connection = &link->connection;
        char *scratch = link->server->scratch;
        ssize_t n = recv(link->fd, scratch, HTTP_READ_SIZE, 0);
        if (n < 0) {
                if (errno != EAGAIN && errno != EINTR)
                        http_connection_abandon(connection);
                return;
        }
        if (n == 0) {
                http_connection_end_input(connection);
                return;
        }
        link->server->counters.bytes_in += (uint64_t) n;
        if (connection->phase == PHASE_LAST) {
                link->lingered += (uint64_t) n;
                if (link->lingered > HTTP_LINGER_MAX)
                        http_connection_abandon(connection);
                return;
        }
        size_t taken = http_connection_feed(connection, scratch, (size_t) n);
        if (taken < (size_t) n && connection->phase != PHASE_GONE)
                keep_input(link, scratch + taken, (size_t) n - taken);
}

/* ---- bytes out ---- */

/* False: the socket takes no more, or never will. */
static bool send_some(struct http_conn_io *link) {
        struct http_out *out = &link->connection.out;
        while (http_out_size(out) > 0) {
                ssize_t n = send(link->fd, out->bytes + out->start, http_out_size(out), MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) {
                        if (errno != EAGAIN)
                                http_connection_abandon(&link->connection);
                        return false;
                }
                http_out_drop(out, (size_t) n);
                link->server->counters.bytes_out += (uint64_t) n;
                link->sent_ms = loop_now_ms();
        }
        return true;
}

/* ---- deadlines ---- */

static void on_timer(void *context);

static void set_deadline(struct http_conn_io *link, enum http_deadline deadline, uint64_t at_ms) {
        link->deadline = deadline;
        link->deadline_ms = at_ms;
        if (deadline == DEADLINE_NONE || (link->timer && link->timer_at_ms <= at_ms))
                return; /* it will look again when it fires */
        loop_timer_drop(&link->timer);
        link->timer = loop_timer(link->server->loop, at_ms, on_timer, link);
        link->timer_at_ms = at_ms;
        if (!link->timer)
                http_connection_abandon(&link->connection); /* never without a deadline */
}

/* Marks the moment when what a deadline is about began. */
static void mark_phase(struct http_conn_io *link) {
        const struct http_connection *connection = &link->connection;
        /* The client is not to blame for the time that a handler makes it wait. */
        bool waits_for_us = connection->phase == PHASE_BODY && !http_connection_wants_input(connection);
        if (link->marked_phase == connection->phase && link->marked_request == connection->n_requests &&
            link->marked_wait == waits_for_us)
                return;
        link->marked_wait = waits_for_us;
        link->marked_phase = connection->phase;
        link->marked_request = connection->n_requests;
        link->since_ms = loop_now_ms();
        link->window_received = connection->request.body.received;
}

static void choose_deadline(struct http_conn_io *link) {
        const struct http_options *options = &link->server->options;
        struct http_connection *connection = &link->connection;
        bool wants_input = http_connection_wants_input(connection);
        mark_phase(link);
        if (http_out_size(&connection->out) > 0)
                set_deadline(link, DEADLINE_SEND, link->sent_ms + options->stall_ms);
        else if (connection->phase == PHASE_IDLE && connection->n_requests > 0)
                set_deadline(link, DEADLINE_IDLE, link->since_ms + options->idle_ms);
        else if (connection->phase == PHASE_IDLE)
                set_deadline(link, DEADLINE_IDLE, link->since_ms + options->head_ms);
        else if (connection->phase == PHASE_HEAD)
                set_deadline(link, DEADLINE_HEAD, link->since_ms + options->head_ms);
        else if ((connection->phase == PHASE_BODY || connection->phase == PHASE_DISCARD) && wants_input)
                set_deadline(link, DEADLINE_BODY, link->since_ms + options->body_window_ms);
        else if (connection->phase == PHASE_LAST)
                set_deadline(link, DEADLINE_LINGER, link->since_ms + options->linger_ms);
        else
                set_deadline(link, DEADLINE_NONE, 0);
}

static void end_body_window(struct http_conn_io *link) {
        uint64_t received = link->connection.request.body.received;
        if (received - link->window_received < link->server->options.body_window_min) {
                link->server->counters.timeouts++;
                http_connection_refuse(&link->connection, 408, "the body comes too slowly");
                return;
        }
        link->window_received = received;
        link->since_ms = loop_now_ms();
}

static void reach_deadline(struct http_conn_io *link) {
        struct http_counters *counters = &link->server->counters;
        switch (link->deadline) {
        case DEADLINE_HEAD:
                counters->timeouts++;
                http_connection_refuse(&link->connection, 408, "the head of the request comes too slowly");
                break;
        case DEADLINE_BODY:
                end_body_window(link);
                break;
        case DEADLINE_SEND:
                counters->timeouts++;
                http_connection_abandon(&link->connection);
                break;
        default:
                http_connection_abandon(&link->connection);
        }
}

/* ---- a turn ---- */

static void on_turn(void *context);

static void conn_schedule(struct http_conn_io *link, uint64_t at_ms) {
        if (link->turn)
                return;
        link->turn = loop_timer(link->server->loop, at_ms, on_turn, link);
        /* Without memory for that, the socket's own readiness does it: it can be written to sooner or later. */
        if (!link->turn && loop_watch_change(link->watch, link->watched | EPOLLOUT) == 0)
                link->watched |= EPOLLOUT;
}

static void conn_io_wake(struct http_connection *connection) {
        conn_schedule(link_of(connection), 0);
}

static void conn_io_move(struct http_conn_io *link) {
        struct http_connection *connection = &link->connection;
        for (int i = 0; connection->phase != PHASE_GONE; i++) {
                feed_kept_input(link);
                bool is_blocked = !send_some(link);
                http_connection_report_drained(connection);
                bool has_more = has_input(link) && http_connection_wants_input(connection);
                if (is_blocked || (http_out_size(&connection->out) == 0 && !has_more))
                        return;
                if (i < ROUNDS_PER_TURN)
                        continue;
                if (has_more)
                        conn_schedule(link, loop_now_ms() + 1); /* not in this turn of the loop */
                return;
        }
}

/* After the last byte: lets the client read it although it sends more; a plain close would reset the connection. */
static void close_politely(struct http_conn_io *link) {
        struct http_connection *connection = &link->connection;
        if (connection->phase != PHASE_LAST || http_out_size(&connection->out) > 0)
                return;
        if (!connection->must_linger || connection->input_ended)
                http_connection_abandon(connection);
        else if (!link->is_shut) {
                link->is_shut = true;
                (void) shutdown(link->fd, SHUT_WR);
                link->since_ms = loop_now_ms();
        }
}

/* Masks events that are not wanted now: the loop would report them again at once. */
static void choose_events(struct http_conn_io *link, uint32_t unwanted) {
        const struct http_connection *connection = &link->connection;
        uint32_t events = link->watched & ~unwanted & (uint32_t) (EPOLLIN | EPOLLRDHUP);
        if (http_connection_wants_input(connection) && !has_input(link))
                events = EPOLLIN | EPOLLRDHUP;
        if (connection->phase == PHASE_ANSWER)
                events |= EPOLLRDHUP;
        if (http_out_size(&connection->out) > 0)
                events |= EPOLLOUT;
        if (events != link->watched && loop_watch_change(link->watch, events) < 0)
                http_connection_abandon(&link->connection);
        link->watched = events;
}

/* Does all work that is possible now. The connection may be freed afterwards. */
static void conn_io_turn(struct http_conn_io *link, uint32_t unwanted) {
        struct http_connection *connection = &link->connection;
        if (!link->has_unsent)
                link->sent_ms = loop_now_ms();
        conn_io_move(link);
        link->has_unsent = http_out_size(&connection->out) > 0;
        if (connection->phase == PHASE_IDLE && (connection->input_ended || !connection->keeps))
                http_connection_end_input(connection);
        mark_phase(link);
        close_politely(link);
        if (connection->phase != PHASE_GONE)
                choose_deadline(link);
        if (connection->phase != PHASE_GONE)
                choose_events(link, unwanted);
        if (connection->phase == PHASE_GONE)
                http_conn_io_close(link);
        else if (connection->phase == PHASE_IDLE)
                http_out_trim(&connection->out);
}

static void on_timer(void *context) {
        struct http_conn_io *link = context;
        link->timer = NULL;
        if (link->deadline != DEADLINE_NONE && loop_now_ms() >= link->deadline_ms)
                reach_deadline(link);
        conn_io_turn(link, 0);
}

static void on_turn(void *context) {
        struct http_conn_io *link = context;
        link->turn = NULL;
        conn_io_turn(link, 0);
}

static void on_socket(void *context, uint32_t events) {
        struct http_conn_io *link = context;
        struct http_connection *connection = &link->connection;
        uint32_t unwanted = 0;
        if (events & (EPOLLERR | EPOLLHUP) && !(events & EPOLLIN && http_connection_wants_input(connection)))
                http_connection_abandon(connection);
        else if (events & (EPOLLIN | EPOLLRDHUP) && http_connection_wants_input(connection) && !has_input(link))
                read_socket(link);
        else
                unwanted = events & (uint32_t) (EPOLLIN | EPOLLRDHUP);
        /* The client has left before its answer was there. One that only closed its own direction looks the same. */
        if (events & EPOLLRDHUP && connection->phase == PHASE_ANSWER)
                http_connection_abandon(connection);
        conn_io_turn(link, unwanted);
}

int http_conn_io_open(struct http_server *server, int fd, const struct http_peer *peer) {
        struct http_conn_io *link = calloc(1, sizeof(*link));
        if (!link) {
                fd_close(&fd);
                return -ENOMEM;
        }
        link->server = server;
        link->fd = fd;
        link->watched = EPOLLIN | EPOLLRDHUP;
        link->since_ms = loop_now_ms();
        link->connection.peer = *peer;
        link->connection.handler = &server->handler;
        link->connection.counters = &server->counters;
        link->connection.wake = conn_io_wake;
        http_connection_begin(&link->connection);
        link->next = server->links;
        if (server->links)
                server->links->previous = link;
        server->links = link;
        server->counters.open++;
        link->watch = loop_watch(server->loop, fd, link->watched, on_socket, link);
        choose_deadline(link);
        if (!link->watch || link->connection.phase == PHASE_GONE) {
                http_conn_io_close(link);
                return -ENOMEM;
        }
        return 0;
}

/* The descriptor is copied, and the connection ends as after a last answer; the copy keeps the socket open. */
int http_take_socket(struct http_request *request, const char *protocol) {
        struct http_conn_io *link = link_of(http_connection_of(request));
        struct http_connection *connection = &link->connection;
        const char *wanted = http_header(request, "Upgrade"), *how = http_header(request, "Connection");
        char head[160];
        if (!wanted || strcasecmp(wanted, protocol) != 0 || !how || !strcasestr(how, "upgrade") ||
            http_content_length(request) != 0 || request->head.is_old)
                return -EPROTO;
        if (connection->answer != ANSWER_OWED || has_input(link) || http_out_size(&connection->out) > 0)
                return -EBUSY;
        _cleanup_fd_ int fd = fcntl(link->fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        int size =
                snprintf(head, sizeof(head),
                         "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %.32s\r\n\r\n", protocol);
        if (send(fd, head, (size_t) size, MSG_NOSIGNAL | MSG_DONTWAIT) != size)
                return -EPIPE;
        http_connection_answered(connection, false);
        connection->must_linger = false;
        return take_fd(&fd);
}

void http_conn_io_drain(struct http_conn_io *link) {
        link->connection.keeps = false;
        conn_io_wake(&link->connection);
}
