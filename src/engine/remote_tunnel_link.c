#include "engine/remote_tunnel_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/remote_tunnel.h"
#include "wire/message.h"

enum { HEAD_MAX = 8 << 10, ROUNDS_MAX = 8 };

/* ---- closing a connection ---- */

static void link_close(struct remote_tunnel_link *link) {
        struct remote_tunnel_helper *helper = link->helper;
        loop_timer_drop(&link->timer);
        loop_unwatch(&link->local_watch);
        loop_unwatch(&link->remote_watch);
        if (link->is_added)
                (void) helper->curl.multi_remove_handle(helper->multi, link->easy);
        if (link->easy)
                helper->curl.easy_cleanup(link->easy);
        fd_close(&link->local_fd);
        helper->n_links--;
        free(link);
}

/* Texts of a remote are untrusted: only printable ASCII goes into the JSON. */
static void json_escape(const char *text, char *ret_text, size_t room) {
        size_t n = 0;
        for (; *text && n + 8 < room; text++) {
                unsigned char c = (unsigned char) *text;
                if (c < 0x20 || c >= 0x7f)
                        ret_text[n++] = ' ';
                else {
                        if (c == '"' || c == '\\')
                                ret_text[n++] = '\\';
                        ret_text[n++] = (char) c;
                }
        }
        ret_text[n] = '\0';
}

void remote_tunnel_link_send_error(struct remote_tunnel_link *link, const struct err *why) {
        char text[2200], escaped[2000];
        json_escape(why->message, escaped, sizeof(escaped));
        int size = snprintf(text, sizeof(text), "{\"ok\":false,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}",
                            err_code_name(why->code), escaped);
        struct message_queue queue = message_queue_make(sizeof(text) + 64);
        (void) message_queue_send(&queue, link->local_fd, MESSAGE_ANSWER, REMOTE_TUNNEL_NOTICE, 0, text, (size_t) size);
        message_queue_release(&queue);
        link_close(link);
}

void remote_tunnel_link_send_failure(struct remote_tunnel_link *link, enum err_code code, const char *what) {
        struct err err;
        (void) err_set(&err, code, "%s (%.300s)", what, link->helper->settings->url);
        remote_tunnel_link_send_error(link, &err);
}

/* ---- moving bytes ---- */

static size_t buffer_size(const struct pipe_buffer *buffer) {
        return buffer->end - buffer->start;
}

static void buffer_consume(struct pipe_buffer *buffer, size_t n) {
        buffer->start += n;
        if (buffer->start == buffer->end)
                buffer->start = buffer->end = 0;
}

/* False: the connection has ended. */
static bool link_send_to_remote(struct remote_tunnel_link *link) {
        struct pipe_buffer *to_remote = &link->to_remote;
        while (buffer_size(to_remote) > 0) {
                size_t n = 0;
                CURLcode code = link->helper->curl.easy_send(link->easy, to_remote->bytes + to_remote->start,
                                                             buffer_size(to_remote), &n);
                if (code == CURLE_AGAIN)
                        return true;
                if (code != CURLE_OK)
                        return false;
                buffer_consume(to_remote, n);
        }
        return true;
}

static bool link_send_to_daemon(struct remote_tunnel_link *link) {
        struct pipe_buffer *to_daemon = &link->to_daemon;
        while (buffer_size(to_daemon) > 0) {
                ssize_t n =
                        send(link->local_fd, to_daemon->bytes + to_daemon->start, buffer_size(to_daemon), MSG_NOSIGNAL);
                if (n < 0)
                        return errno == EAGAIN || errno == EINTR;
                buffer_consume(to_daemon, (size_t) n);
        }
        return true;
}

/* 1: received bytes; 0: none now; -1: the stream has ended. */
static int link_receive_from_remote(struct remote_tunnel_link *link) {
        struct pipe_buffer *to_daemon = &link->to_daemon;
        size_t n = 0;
        if (to_daemon->end == sizeof(to_daemon->bytes))
                return 0;
        CURLcode code = link->helper->curl.easy_recv(link->easy, to_daemon->bytes + to_daemon->end,
                                                     sizeof(to_daemon->bytes) - to_daemon->end, &n);
        if (code == CURLE_AGAIN)
                return 0;
        if (code != CURLE_OK || n == 0)
                return -1;
        to_daemon->end += n;
        return 1;
}

static int link_receive_from_daemon(struct remote_tunnel_link *link) {
        struct pipe_buffer *to_remote = &link->to_remote;
        if (to_remote->end == sizeof(to_remote->bytes))
                return 0;
        ssize_t n =
                recv(link->local_fd, to_remote->bytes + to_remote->end, sizeof(to_remote->bytes) - to_remote->end, 0);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -1;
        if (n == 0)
                return -1;
        to_remote->end += (size_t) n;
        return 1;
}

static void link_watch_events(struct remote_tunnel_link *link) {
        bool is_open = link->state == LINK_OPEN;
        uint32_t local = (is_open && buffer_size(&link->to_remote) == 0 ? (uint32_t) EPOLLIN : 0) |
                         (is_open && buffer_size(&link->to_daemon) > 0 ? (uint32_t) EPOLLOUT : 0);
        uint32_t remote = (!is_open || buffer_size(&link->to_daemon) == 0 ? (uint32_t) EPOLLIN : 0) |
                          (buffer_size(&link->to_remote) > 0 ? (uint32_t) EPOLLOUT : 0);
        (void) loop_watch_change(link->local_watch, local);
        (void) loop_watch_change(link->remote_watch, remote);
}

/* Moves as many bytes as possible. TLS may hold decrypted bytes for which no event comes, so this reads until there are
 * none. */
static void link_move_bytes(struct remote_tunnel_link *link) {
        for (int round = 0; round < ROUNDS_MAX; round++) {
                int from_remote = buffer_size(&link->to_daemon) == 0 ? link_receive_from_remote(link) : 0;
                int from_daemon = buffer_size(&link->to_remote) == 0 ? link_receive_from_daemon(link) : 0;
                if (!link_send_to_daemon(link) || from_daemon < 0 ||
                    (from_remote < 0 && buffer_size(&link->to_daemon) == 0) || !link_send_to_remote(link)) {
                        link_close(link);
                        return;
                }
                if (from_remote <= 0 && from_daemon <= 0)
                        break;
        }
        link_watch_events(link);
}

/* ---- the upgrade ---- */

/* Copies a text of the remote's problem document (RFC 9457): "detail" or "remedy". */
static void copy_json_text(const char *body, const char *key, char *ret_text, size_t room) {
        char pattern[32];
        (void) snprintf(pattern, sizeof(pattern), "\"%s\":\"", key);
        const char *at = strstr(body, pattern);
        size_t n = 0;
        for (at = at ? at + strlen(pattern) : ""; *at && *at != '"' && n + 1 < room; at++) {
                if (*at == '\\' && at[1])
                        at++;
                ret_text[n++] = *at;
        }
        ret_text[n] = '\0';
}

static void link_refuse_status(struct remote_tunnel_link *link, int status, const char *body) {
        char detail[400], remedy[300];
        struct err err;
        copy_json_text(body, "detail", detail, sizeof(detail));
        copy_json_text(body, "remedy", remedy, sizeof(remedy));
        enum err_code code = status == 401 || status == 403 ? ERR_REFUSED
                             : status == 429                ? ERR_LIMIT
                             : status >= 500                ? ERR_GONE
                                                            : ERR_PROTOCOL;
        if (*detail)
                (void) err_set(&err, code, "the remote refuses (HTTP %d): %s%s%s", status, detail, *remedy ? "; " : "",
                               remedy);
        else
                (void) err_set(&err, code,
                               "the server at %.200s is no Glovebox that accepts channels (HTTP %d); is the URL right?",
                               link->helper->settings->url, status);
        remote_tunnel_link_send_error(link, &err);
}

/* Reads the response to the upgrade. A refusal is reported once its body has arrived. */
static void link_read_response(struct remote_tunnel_link *link) {
        struct pipe_buffer *to_daemon = &link->to_daemon;
        int n;
        while ((n = link_receive_from_remote(link)) > 0 && buffer_size(to_daemon) < HEAD_MAX)
                ;
        to_daemon->bytes[to_daemon->end < sizeof(to_daemon->bytes) ? to_daemon->end : sizeof(to_daemon->bytes) - 1] =
                '\0';
        char *end = strstr(to_daemon->bytes, "\r\n\r\n");
        int status = 0;
        if (!end) {
                if (n < 0)
                        remote_tunnel_link_send_failure(link, ERR_GONE, "the remote closed the connection");
                else if (buffer_size(to_daemon) >= HEAD_MAX)
                        remote_tunnel_link_send_failure(link, ERR_PROTOCOL, "the server there is no Glovebox");
                return;
        }
        if (sscanf(to_daemon->bytes, "HTTP/1.1 %3d", &status) != 1) {
                remote_tunnel_link_send_failure(link, ERR_PROTOCOL, "the server there does not speak HTTP/1.1");
                return;
        }
        if (status != 101) {
                if (n == 0 && !strchr(end + 4, '}')) /* the body arrives later */
                        return;
                link_refuse_status(link, status, end + 4);
                return;
        }
        loop_timer_drop(&link->timer);
        buffer_consume(to_daemon, (size_t) (end + 4 - to_daemon->bytes) - to_daemon->start);
        link->state = LINK_OPEN;
        link_move_bytes(link);
}

static void on_remote(void *context, uint32_t events) {
        struct remote_tunnel_link *link = context;
        (void) events;
        if (link->state == LINK_OPEN) {
                link_move_bytes(link);
                return;
        }
        if (!link_send_to_remote(link)) {
                remote_tunnel_link_send_failure(link, ERR_GONE, "the remote closed the connection");
                return;
        }
        link_watch_events(link);
        link_read_response(link);
}

static void on_local(void *context, uint32_t events) {
        struct remote_tunnel_link *link = context;
        if (link->state != LINK_OPEN && events & (EPOLLHUP | EPOLLERR)) {
                link_close(link);
                return;
        }
        if (link->state == LINK_OPEN)
                link_move_bytes(link);
}

static void on_connect_timeout(void *context) {
        struct remote_tunnel_link *link = context;
        link->timer = NULL;
        remote_tunnel_link_send_failure(link, ERR_TIMEOUT, "the remote does not answer in time");
}

void remote_tunnel_link_request_upgrade(struct remote_tunnel_link *link) {
        const struct remote_tunnel_helper *helper = link->helper;
        struct pipe_buffer *to_remote = &link->to_remote;
        int size = snprintf(to_remote->bytes, sizeof(to_remote->bytes),
                            "GET %s/channel HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
                            "User-Agent: glovebox/" GLOVEBOX_VERSION
                            "\r\nConnection: Upgrade\r\nUpgrade: glovebox\r\n\r\n",
                            helper->path, helper->host, helper->settings->key);
        to_remote->end = (size_t) size;
        link->state = LINK_UPGRADING;
        link->remote_watch = loop_watch(helper->loop, link->remote_fd, EPOLLIN | EPOLLOUT, on_remote, link);
        if (!link->remote_watch)
                remote_tunnel_link_send_failure(link, ERR_SYSTEM, "out of memory");
}

bool remote_tunnel_link_watch_local(struct remote_tunnel_link *link) {
        struct remote_tunnel_helper *helper = link->helper;
        link->local_watch = loop_watch(helper->loop, link->local_fd, 0, on_local, link);
        link->timer = loop_timer(helper->loop, loop_now_ms() + helper->settings->timeout_ms, on_connect_timeout, link);
        return link->local_watch && link->timer;
}
