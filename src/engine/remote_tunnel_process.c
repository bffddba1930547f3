/* The helper process that connects to a remote: see remote_tunnel.h. It has one loop. On it libcurl makes the
 * connections (DNS, TCP, TLS, the check of the certificate) and encrypts; the code here moves bytes. */
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
#include "engine/remote_tunnel.h"
#include "engine/remote_tunnel_settings.h"
#include "wire/message.h"

enum { BUFFER_BYTES = 64 << 10, HEAD_MAX = 8 << 10, ROUNDS_MAX = 8 };

struct pipe_buffer {
        size_t start, end;
        char bytes[BUFFER_BYTES];
};

enum link_state {
        LINK_CONNECTING, /* libcurl connects */
        LINK_UPGRADING, /* the request for the upgrade was made */
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
        struct loop_timer *timer; /* limits the time until it is open */
        struct pipe_buffer to_remote, to_daemon;
        char error[CURL_ERROR_SIZE];
};

struct helper_state {
        const struct remote_tunnel_settings *settings;
        struct loop *loop;
        struct curl_library curl;
        CURLM *multi;
        struct loop_timer *curl_timer;
        int orders_fd;
        size_t n_links;
        struct err error; /* of the start of libcurl; then no connection can be made */
        char host[300], path[REMOTE_TUNNEL_TEXT_MAX];
};

/* ---- closing a connection ---- */

static void link_close(struct link *link) {
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

static void link_send_error(struct link *link, const struct err *why) {
        char text[2200], escaped[2000];
        json_escape(why->message, escaped, sizeof(escaped));
        int size = snprintf(text, sizeof(text), "{\"ok\":false,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}",
                            err_code_name(why->code), escaped);
        struct message_queue queue = message_queue_make(sizeof(text) + 64);
        (void) message_queue_send(&queue, link->local_fd, MESSAGE_ANSWER, REMOTE_TUNNEL_NOTICE, 0, text, (size_t) size);
        message_queue_release(&queue);
        link_close(link);
}

static void link_send_failure(struct link *link, enum err_code code, const char *what) {
        struct err err;
        (void) err_set(&err, code, "%s (%.300s)", what, link->helper->settings->url);
        link_send_error(link, &err);
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
static bool link_send_to_remote(struct link *link) {
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

static bool link_send_to_daemon(struct link *link) {
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
static int link_receive_from_remote(struct link *link) {
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

static int link_receive_from_daemon(struct link *link) {
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

static void link_watch_events(struct link *link) {
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
static void link_move_bytes(struct link *link) {
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

static void link_refuse_status(struct link *link, int status, const char *body) {
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
        link_send_error(link, &err);
}

/* Reads the response to the upgrade. A refusal is reported once its body has arrived. */
static void link_read_response(struct link *link) {
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
                        link_send_failure(link, ERR_GONE, "the remote closed the connection");
                else if (buffer_size(to_daemon) >= HEAD_MAX)
                        link_send_failure(link, ERR_PROTOCOL, "the server there is no Glovebox");
                return;
        }
        if (sscanf(to_daemon->bytes, "HTTP/1.1 %3d", &status) != 1) {
                link_send_failure(link, ERR_PROTOCOL, "the server there does not speak HTTP/1.1");
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
        struct link *link = context;
        (void) events;
        if (link->state == LINK_OPEN) {
                link_move_bytes(link);
                return;
        }
        if (!link_send_to_remote(link)) {
                link_send_failure(link, ERR_GONE, "the remote closed the connection");
                return;
        }
        link_watch_events(link);
        link_read_response(link);
}

static void on_local(void *context, uint32_t events) {
        struct link *link = context;
        if (link->state != LINK_OPEN && events & (EPOLLHUP | EPOLLERR)) {
                link_close(link);
                return;
        }
        if (link->state == LINK_OPEN)
                link_move_bytes(link);
}

static void on_connect_timeout(void *context) {
        struct link *link = context;
        link->timer = NULL;
        link_send_failure(link, ERR_TIMEOUT, "the remote does not answer in time");
}

static void link_request_upgrade(struct link *link) {
        const struct helper_state *helper = link->helper;
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
                link_send_failure(link, ERR_SYSTEM, "out of memory");
}

/* ---- connecting ---- */

static void explain_curl_error(const struct link *link, CURLcode code, struct err *err) {
        const char *why = *link->error ? link->error : link->helper->curl.easy_strerror(code);
        const char *url = link->helper->settings->url;
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

static void read_finished_connects(struct helper_state *helper) {
        CURLMsg *message;
        int left;
        while ((message = helper->curl.multi_info_read(helper->multi, &left))) {
                struct link *link = NULL;
                CURLcode code = message->data.result;
                if (message->msg != CURLMSG_DONE)
                        continue;
                (void) helper->curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **) &link);
                if (code == CURLE_OK)
                        code = helper->curl.easy_getinfo(link->easy, CURLINFO_ACTIVESOCKET, &link->remote_fd);
                if (code == CURLE_OK && link->remote_fd != CURL_SOCKET_BAD) {
                        link_request_upgrade(link);
                        continue;
                }
                struct err err;
                explain_curl_error(link, code, &err);
                link_send_error(link, &err);
        }
}

static void on_curl_socket(void *context, uint32_t events);

/* The watch of a descriptor that libcurl waits for. */
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
        read_finished_connects(helper);
}

static void on_curl_timer(void *context) {
        struct helper_state *helper = context;
        int running;
        helper->curl_timer = NULL;
        (void) helper->curl.multi_socket_action(helper->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        read_finished_connects(helper);
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

/* Detects within a minute that the host has disappeared without closing the connection. */
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

static bool link_set_options(struct link *link) {
        const struct helper_state *helper = link->helper;
        const struct curl_library *curl = &helper->curl;
        CURL *easy = link->easy;
        bool is_good =
                curl->easy_setopt(easy, CURLOPT_URL, helper->settings->url) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_SSLVERSION, (long) CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long) helper->settings->timeout_ms) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, link->error) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket_made) == CURLE_OK &&
                curl->easy_setopt(easy, CURLOPT_PRIVATE, link) == CURLE_OK;
        if (is_good && *helper->settings->ca)
                is_good = curl->easy_setopt(easy, CURLOPT_CAINFO, helper->settings->ca) == CURLE_OK;
        return is_good;
}

static void link_begin(struct helper_state *helper, int local_fd) {
        struct link *link = helper->n_links < REMOTE_TUNNELS_MAX ? calloc(1, sizeof(*link)) : NULL;
        if (!link) {
                fd_close(&local_fd);
                return;
        }
        helper->n_links++;
        link->helper = helper;
        link->local_fd = local_fd;
        link->remote_fd = CURL_SOCKET_BAD;
        if (helper->error.code != ERR_NONE) {
                link_send_error(link, &helper->error);
                return;
        }
        link->local_watch = loop_watch(helper->loop, local_fd, 0, on_local, link);
        link->timer = loop_timer(helper->loop, loop_now_ms() + helper->settings->timeout_ms, on_connect_timeout, link);
        link->easy = helper->curl.easy_init();
        if (!link->local_watch || !link->timer || !link->easy || !link_set_options(link)) {
                link_send_failure(link, ERR_SYSTEM, "the connection to the remote cannot be set up");
                return;
        }
        link->is_added = helper->curl.multi_add_handle(helper->multi, link->easy) == CURLM_OK;
        if (!link->is_added)
                link_send_failure(link, ERR_SYSTEM, "the connection to the remote cannot be set up");
}

static void on_connect_order(void *context, uint32_t events) {
        struct helper_state *helper = context;
        char byte;
        int fd = -1;
        (void) events;
        ssize_t n = fd_passing_receive(helper->orders_fd, &byte, 1, &fd, 1, MSG_DONTWAIT);
        if (n == -EAGAIN || n == -EINTR)
                return;
        if (n <= 0)
                _exit(EXIT_SUCCESS); /* the daemon has exited */
        if (fd >= 0)
                link_begin(helper, fd);
}

/* ---- start ---- */

static int parse_remote_url(struct helper_state *helper, struct err *err) {
        const struct curl_library *curl = &helper->curl;
        CURLU *url = curl->url();
        char *host = NULL, *port = NULL, *path = NULL;
        bool is_good = url && curl->url_set(url, CURLUPART_URL, helper->settings->url, 0) == CURLUE_OK &&
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
        return is_good ? 0 : err_set(err, ERR_USAGE, "\"%.200s\" is no URL", helper->settings->url);
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
        return parse_remote_url(helper, err);
}

_Noreturn void remote_tunnel_run(const struct remote_tunnel_settings *settings, int orders_fd) {
        static struct helper_state helper;
        struct err err = { 0 };
        (void) signal(SIGPIPE, SIG_IGN);
        (void) prctl(PR_SET_DUMPABLE, 0); /* the process has the key in memory */
        helper.settings = settings;
        helper.orders_fd = orders_fd;
        if (loop_make(&helper.loop, &err) < 0 ||
            !loop_watch(helper.loop, orders_fd, EPOLLIN, on_connect_order, &helper))
                _exit(EXIT_FAILURE);
        if (start_curl(&helper, &err) < 0)
                helper.error = err;
        (void) loop_run(helper.loop, &err);
        _exit(EXIT_FAILURE);
}
