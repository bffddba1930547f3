/* The helper process that connects to a remote: see tunnel.h. One loop; libcurl makes the connections on it (names,
 * TCP, TLS, the check of the certificate) and encrypts; the rest is moving bytes. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/loop.h"
#include "base/memory.h"
#include "engine/curl_library.h"
#include "engine/tunnel.h"
#include "engine/tunnel_order.h"
#include "wire/message.h"

enum { BUFFER_BYTES = 64 << 10, HEAD_MAX = 8 << 10, ROUNDS = 8 };

struct pipe_buffer {
        size_t start, end;
        char bytes[BUFFER_BYTES];
};

enum link_state {
        LINK_CONNECTING, /* libcurl has it */
        LINK_ASKING,     /* the upgrade was asked for */
        LINK_OPEN,
};

struct link {
        struct helper_state *helper;
        enum link_state state;
        int local_fd;
        CURL *easy;
        bool is_added; /* to the multi handle */
        curl_socket_t remote_fd;
        struct loop_watch *local_watch, *remote_watch;
        struct loop_timer *timer; /* until it must be open */
        struct pipe_buffer up, down;
        char trouble[CURL_ERROR_SIZE];
};

struct helper_state {
        const struct tunnel_order *order;
        struct loop *loop;
        struct curl_library curl;
        CURLM *multi;
        struct loop_timer *curl_timer;
        int orders_fd;
        size_t n_links;
        struct err trouble; /* why nothing can be connected at all */
        char host[300], path[TUNNEL_TEXT_MAX];
};

/* ---- the end of a connection ---- */

static void link_free(struct link *link) {
        struct helper_state *helper = link->helper;
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

/* JSON needs care with what a stranger wrote. */
static void escape(const char *text, char *ret_text, size_t room) {
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

static void link_refuse(struct link *link, const struct err *why) {
        char text[2200], escaped[2000];
        escape(why->message, escaped, sizeof(escaped));
        int size = snprintf(text, sizeof(text), "{\"ok\":false,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}",
                            err_code_name(why->code), escaped);
        struct message_queue queue = message_queue_make(sizeof(text) + 64);
        (void) message_queue_send(&queue, link->local_fd, MESSAGE_ANSWER, TUNNEL_NOTICE, 0, text, (size_t) size);
        message_queue_release(&queue);
        link_free(link);
}

static void link_fail(struct link *link, enum err_code code, const char *what) {
        struct err err;
        (void) err_set(&err, code, "%s (%.300s)", what, link->helper->order->url);
        link_refuse(link, &err);
}

/* ---- bytes ---- */

static size_t held(const struct pipe_buffer *buffer) {
        return buffer->end - buffer->start;
}

static void drop_sent(struct pipe_buffer *buffer, size_t n) {
        buffer->start += n;
        if (buffer->start == buffer->end)
                buffer->start = buffer->end = 0;
}

/* False: the connection is over. */
static bool send_up(struct link *link) {
        struct pipe_buffer *up = &link->up;
        while (held(up) > 0) {
                size_t n = 0;
                CURLcode code = link->helper->curl.easy_send(link->easy, up->bytes + up->start, held(up), &n);
                if (code == CURLE_AGAIN)
                        return true;
                if (code != CURLE_OK)
                        return false;
                drop_sent(up, n);
        }
        return true;
}

static bool send_down(struct link *link) {
        struct pipe_buffer *down = &link->down;
        while (held(down) > 0) {
                ssize_t n = send(link->local_fd, down->bytes + down->start, held(down), MSG_NOSIGNAL);
                if (n < 0)
                        return errno == EAGAIN || errno == EINTR;
                drop_sent(down, (size_t) n);
        }
        return true;
}

/* 1: something came; 0: nothing now; -1: the end. */
static int receive_down(struct link *link) {
        struct pipe_buffer *down = &link->down;
        size_t n = 0;
        if (down->end == sizeof(down->bytes))
                return 0;
        CURLcode code =
                link->helper->curl.easy_recv(link->easy, down->bytes + down->end, sizeof(down->bytes) - down->end, &n);
        if (code == CURLE_AGAIN)
                return 0;
        if (code != CURLE_OK || n == 0)
                return -1;
        down->end += n;
        return 1;
}

static int receive_up(struct link *link) {
        struct pipe_buffer *up = &link->up;
        if (up->end == sizeof(up->bytes))
                return 0;
        ssize_t n = recv(link->local_fd, up->bytes + up->end, sizeof(up->bytes) - up->end, 0);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -1;
        if (n == 0)
                return -1;
        up->end += (size_t) n;
        return 1;
}

static void choose_events(struct link *link) {
        bool is_open = link->state == LINK_OPEN;
        uint32_t local = (is_open && held(&link->up) == 0 ? (uint32_t) EPOLLIN : 0) |
                         (is_open && held(&link->down) > 0 ? (uint32_t) EPOLLOUT : 0);
        uint32_t remote = (!is_open || held(&link->down) == 0 ? (uint32_t) EPOLLIN : 0) |
                          (held(&link->up) > 0 ? (uint32_t) EPOLLOUT : 0);
        (void) loop_watch_change(link->local_watch, local);
        (void) loop_watch_change(link->remote_watch, remote);
}

/* Moves what can be moved; TLS may hold bytes that no event tells of, so it is read until there are none. */
static void link_move(struct link *link) {
        for (int round = 0; round < ROUNDS; round++) {
                int down = held(&link->down) == 0 ? receive_down(link) : 0;
                int up = held(&link->up) == 0 ? receive_up(link) : 0;
                if (!send_down(link) || up < 0 || (down < 0 && held(&link->down) == 0) || !send_up(link)) {
                        link_free(link);
                        return;
                }
                if (down <= 0 && up <= 0)
                        break;
        }
        choose_events(link);
}

/* ---- the upgrade ---- */

/* The remote's own words, from a problem (RFC 9457): "detail" and "remedy". */
static void take_words(const char *body, const char *key, char *ret_text, size_t room) {
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

static void refuse_answer(struct link *link, int status, const char *body) {
        char detail[400], remedy[300];
        struct err err;
        take_words(body, "detail", detail, sizeof(detail));
        take_words(body, "remedy", remedy, sizeof(remedy));
        enum err_code code = status == 401 || status == 403 ? ERR_REFUSED
                             : status == 429                ? ERR_LIMIT
                             : status >= 500                ? ERR_GONE
                                                            : ERR_PROTOCOL;
        if (*detail)
                (void) err_set(&err, code, "the remote refuses (HTTP %d): %s%s%s", status, detail, *remedy ? "; " : "",
                               remedy);
        else
                (void) err_set(&err, code,
                               "what answers at %.200s is no Glovebox that takes channels (HTTP %d); is the URL right?",
                               link->helper->order->url, status);
        link_refuse(link, &err);
}

/* The whole of a refusal, as far as it is in the buffer already or comes at once. */
static void read_answer(struct link *link) {
        struct pipe_buffer *down = &link->down;
        int n;
        while ((n = receive_down(link)) > 0 && held(down) < HEAD_MAX)
                ;
        down->bytes[down->end < sizeof(down->bytes) ? down->end : sizeof(down->bytes) - 1] = '\0';
        char *end = strstr(down->bytes, "\r\n\r\n");
        int status = 0;
        if (!end) {
                if (n < 0)
                        link_fail(link, ERR_GONE, "the remote closed the connection");
                else if (held(down) >= HEAD_MAX)
                        link_fail(link, ERR_PROTOCOL, "what answers is no Glovebox");
                return;
        }
        if (sscanf(down->bytes, "HTTP/1.1 %3d", &status) != 1) {
                link_fail(link, ERR_PROTOCOL, "what answers does not speak HTTP/1.1");
                return;
        }
        if (status != 101) {
                if (n == 0 && !strchr(end + 4, '}')) /* its words come in a piece of their own */
                        return;
                refuse_answer(link, status, end + 4);
                return;
        }
        loop_timer_drop(&link->timer);
        drop_sent(down, (size_t) (end + 4 - down->bytes) - down->start);
        link->state = LINK_OPEN;
        link_move(link);
}

static void on_remote(void *context, uint32_t events) {
        struct link *link = context;
        (void) events;
        if (link->state == LINK_OPEN) {
                link_move(link);
                return;
        }
        if (!send_up(link)) {
                link_fail(link, ERR_GONE, "the remote closed the connection");
                return;
        }
        choose_events(link);
        read_answer(link);
}

static void on_local(void *context, uint32_t events) {
        struct link *link = context;
        if (link->state != LINK_OPEN && events & (EPOLLHUP | EPOLLERR)) {
                link_free(link);
                return;
        }
        if (link->state == LINK_OPEN)
                link_move(link);
}

static void on_slow(void *context) {
        struct link *link = context;
        link->timer = NULL;
        link_fail(link, ERR_TIMEOUT, "the remote does not answer in time");
}

static void ask_upgrade(struct link *link) {
        const struct helper_state *helper = link->helper;
        struct pipe_buffer *up = &link->up;
        int size = snprintf(up->bytes, sizeof(up->bytes),
                            "GET %s/channel HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
                            "User-Agent: glovebox/" GLOVEBOX_VERSION
                            "\r\nConnection: Upgrade\r\nUpgrade: glovebox\r\n\r\n",
                            helper->path, helper->host, helper->order->key);
        up->end = (size_t) size;
        link->state = LINK_ASKING;
        link->remote_watch = loop_watch(helper->loop, link->remote_fd, EPOLLIN | EPOLLOUT, on_remote, link);
        if (!link->remote_watch)
                link_fail(link, ERR_SYSTEM, "out of memory");
}

/* ---- connecting ---- */

static void explain(const struct link *link, CURLcode code, struct err *err) {
        const char *why = *link->trouble ? link->trouble : link->helper->curl.easy_strerror(code);
        const char *url = link->helper->order->url;
        if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
                (void) err_set(err, ERR_REFUSED,
                               "the certificate of %.200s cannot be trusted: %s; if it is yours, name the file of its "
                               "authority (--remote-ca, GLOVEBOX_REMOTE_CA)",
                               url, why);
        else if (code == CURLE_OPERATION_TIMEDOUT)
                (void) err_set(err, ERR_TIMEOUT, "%.200s does not answer: %s", url, why);
        else
                (void) err_set(err, code == CURLE_URL_MALFORMAT ? ERR_USAGE : ERR_GONE, "%.200s cannot be reached: %s",
                               url, why);
}

static void take_finished(struct helper_state *helper) {
        CURLMsg *told;
        int left;
        while ((told = helper->curl.multi_info_read(helper->multi, &left))) {
                struct link *link = NULL;
                CURLcode code = told->data.result;
                if (told->msg != CURLMSG_DONE)
                        continue;
                (void) helper->curl.easy_getinfo(told->easy_handle, CURLINFO_PRIVATE, (char **) &link);
                if (code == CURLE_OK)
                        code = helper->curl.easy_getinfo(link->easy, CURLINFO_ACTIVESOCKET, &link->remote_fd);
                if (code == CURLE_OK && link->remote_fd != CURL_SOCKET_BAD) {
                        ask_upgrade(link);
                        continue;
                }
                struct err err;
                explain(link, code, &err);
                link_refuse(link, &err);
        }
}

static void on_curl_socket(void *context, uint32_t events);

/* A descriptor that libcurl waits for, and whose watch it is. */
struct socket_watch {
        struct helper_state *helper;
        curl_socket_t fd;
        struct loop_watch *watch;
};

static int on_socket_wanted(CURL *easy, curl_socket_t fd, int what, void *context, void *socket_context) {
        struct helper_state *helper = context;
        struct socket_watch *watch = socket_context;
        uint32_t events =
                (what & CURL_POLL_IN ? (uint32_t) EPOLLIN : 0) | (what & CURL_POLL_OUT ? (uint32_t) EPOLLOUT : 0);
        (void) easy;
        if (what == CURL_POLL_REMOVE) {
                if (watch)
                        loop_unwatch(&watch->watch);
                free(watch);
                return 0;
        }
        if (watch)
                return loop_watch_change(watch->watch, events);
        watch = calloc(1, sizeof(*watch));
        if (!watch)
                return -1;
        *watch = (struct socket_watch) { helper, fd, NULL };
        watch->watch = loop_watch(helper->loop, fd, events, on_curl_socket, watch);
        if (!watch->watch) {
                free(watch);
                return -1;
        }
        return helper->curl.multi_assign(helper->multi, fd, watch) == CURLM_OK ? 0 : -1;
}

static void on_curl_socket(void *context, uint32_t events) {
        const struct socket_watch *watch = context;
        struct helper_state *helper = watch->helper;
        int running, what = (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                            (events & (EPOLLHUP | EPOLLERR) ? CURL_CSELECT_ERR : 0);
        (void) helper->curl.multi_socket_action(helper->multi, watch->fd, what, &running);
        take_finished(helper);
}

static void on_curl_timer(void *context) {
        struct helper_state *helper = context;
        int running;
        helper->curl_timer = NULL;
        (void) helper->curl.multi_socket_action(helper->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        take_finished(helper);
}

static int on_timer_wanted(CURLM *multi, long timeout_ms, void *context) {
        struct helper_state *helper = context;
        (void) multi;
        loop_timer_drop(&helper->curl_timer);
        if (timeout_ms >= 0)
                helper->curl_timer =
                        loop_timer(helper->loop, loop_now_ms() + (uint64_t) timeout_ms, on_curl_timer, helper);
        return 0;
}

/* A host that is gone without a word is noticed after a minute. */
static int on_socket_made(void *context, curl_socket_t fd, curlsocktype purpose) {
        static const struct {
                int level, name, value;
        } options[] = { { SOL_SOCKET, SO_KEEPALIVE, 1 },    { IPPROTO_TCP, TCP_KEEPIDLE, 20 },
                        { IPPROTO_TCP, TCP_KEEPINTVL, 10 }, { IPPROTO_TCP, TCP_KEEPCNT, 3 },
                        { IPPROTO_TCP, TCP_NODELAY, 1 },    { IPPROTO_TCP, TCP_USER_TIMEOUT, 60000 } };
        (void) context;
        (void) purpose;
        for (size_t i = 0; i < ELEMENTS(options); i++)
                (void) setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
        return CURL_SOCKOPT_OK;
}

static bool set_options(struct link *link) {
        const struct helper_state *helper = link->helper;
        const struct curl_library *curl = &helper->curl;
        CURL *easy = link->easy;
        bool is_good =
                curl->easy_setopt(easy, CURLOPT_URL, helper->order->url) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long) helper->order->timeout_ms) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, link->trouble) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket_made) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_PRIVATE, link) == CURLE_OK;
        if (is_good && *helper->order->ca)
                is_good = curl->easy_setopt(easy, CURLOPT_CAINFO, helper->order->ca) == CURLE_OK;
        return is_good;
}

static void open_link(struct helper_state *helper, int local_fd) {
        struct link *link = helper->n_links < TUNNELS_MAX ? calloc(1, sizeof(*link)) : NULL;
        if (!link) {
                fd_close(&local_fd);
                return;
        }
        helper->n_links++;
        link->helper = helper;
        link->local_fd = local_fd;
        link->remote_fd = CURL_SOCKET_BAD;
        if (helper->trouble.code != ERR_NONE) {
                link_refuse(link, &helper->trouble);
                return;
        }
        link->local_watch = loop_watch(helper->loop, local_fd, 0, on_local, link);
        link->timer = loop_timer(helper->loop, loop_now_ms() + helper->order->timeout_ms, on_slow, link);
        link->easy = helper->curl.easy_init();
        if (!link->local_watch || !link->timer || !link->easy || !set_options(link)) {
                link_fail(link, ERR_SYSTEM, "the connection to the remote cannot be set up");
                return;
        }
        link->is_added = helper->curl.multi_add_handle(helper->multi, link->easy) == CURLM_OK;
        if (!link->is_added)
                link_fail(link, ERR_SYSTEM, "the connection to the remote cannot be set up");
}

static void on_order(void *context, uint32_t events) {
        struct helper_state *helper = context;
        char byte;
        int fd = -1;
        (void) events;
        ssize_t n = fd_passing_receive(helper->orders_fd, &byte, 1, &fd, 1, MSG_DONTWAIT);
        if (n == -EAGAIN || n == -EINTR)
                return;
        if (n <= 0)
                _exit(EXIT_SUCCESS); /* the daemon is gone */
        if (fd >= 0)
                open_link(helper, fd);
}

/* ---- start ---- */

static int take_apart_url(struct helper_state *helper, struct err *err) {
        const struct curl_library *curl = &helper->curl;
        CURLU *url = curl->url();
        char *host = NULL, *port = NULL, *path = NULL;
        bool is_good = url && curl->url_set(url, CURLUPART_URL, helper->order->url, 0) == CURLUE_OK &&
                       curl->url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                       curl->url_get(url, CURLUPART_PATH, &path, 0) == CURLUE_OK;
        if (is_good) {
                bool has_port = curl->url_get(url, CURLUPART_PORT, &port, 0) == CURLUE_OK;
                (void) snprintf(helper->host, sizeof(helper->host), "%s%s%s", host, has_port ? ":" : "",
                                has_port ? port : "");
                (void) snprintf(helper->path, sizeof(helper->path), "%s", path);
                for (size_t n = strlen(helper->path); n > 0 && helper->path[n - 1] == '/'; n--)
                        helper->path[n - 1] = '\0';
        }
        curl->url_cleanup(url);
        return is_good ? 0 : err_set(err, ERR_USAGE, "\"%.200s\" is no URL", helper->order->url);
}

static int start_curl(struct helper_state *helper, struct err *err) {
        struct curl_library *curl = &helper->curl;
        if (curl_library_load(curl, err) < 0)
                return -1;
        if (curl->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(helper->multi = curl->multi_init()) ||
            curl->multi_setopt(helper->multi, CURLMOPT_SOCKETFUNCTION, on_socket_wanted) != CURLM_OK ||
            curl->multi_setopt(helper->multi, CURLMOPT_SOCKETDATA, helper) != CURLM_OK ||
            curl->multi_setopt(helper->multi, CURLMOPT_TIMERFUNCTION, on_timer_wanted) != CURLM_OK ||
            curl->multi_setopt(helper->multi, CURLMOPT_TIMERDATA, helper) != CURLM_OK)
                return err_set(err, ERR_SYSTEM, "libcurl cannot be set up");
        return take_apart_url(helper, err);
}

_Noreturn void tunnel_run(const struct tunnel_order *order, int orders_fd) {
        static struct helper_state helper;
        struct err err = { 0 };
        (void) signal(SIGPIPE, SIG_IGN);
        (void) prctl(PR_SET_DUMPABLE, 0); /* it holds the key */
        helper.order = order;
        helper.orders_fd = orders_fd;
        if (loop_make(&helper.loop, &err) < 0 || !loop_watch(helper.loop, orders_fd, EPOLLIN, on_order, &helper))
                _exit(EXIT_FAILURE);
        if (start_curl(&helper, &err) < 0)
                helper.trouble = err;
        (void) loop_run(helper.loop, &err);
        _exit(EXIT_FAILURE);
}
