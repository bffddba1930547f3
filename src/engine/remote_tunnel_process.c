/* The helper process that connects to a remote: see remote_tunnel.h. It has one loop. On it libcurl makes the
 * connections (DNS, TCP, TLS, the check of the certificate) and encrypts; remote_tunnel_link.c moves bytes. */
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
#include "engine/remote_tunnel.h"
#include "engine/remote_tunnel_link.h"

/* ---- connecting ---- */

static void explain_curl_error(const struct remote_tunnel_link *link, CURLcode code, struct err *err) {
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

static void read_finished_connects(struct remote_tunnel_helper *helper) {
        CURLMsg *message;
        int left;
        while ((message = helper->curl.multi_info_read(helper->multi, &left))) {
                struct remote_tunnel_link *link = NULL;
                CURLcode code = message->data.result;
                if (message->msg != CURLMSG_DONE)
                        continue;
                (void) helper->curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **) &link);
                if (code == CURLE_OK)
                        code = helper->curl.easy_getinfo(link->easy, CURLINFO_ACTIVESOCKET, &link->remote_fd);
                if (code == CURLE_OK && link->remote_fd != CURL_SOCKET_BAD) {
                        remote_tunnel_link_request_upgrade(link);
                        continue;
                }
                struct err err;
                explain_curl_error(link, code, &err);
                remote_tunnel_link_send_error(link, &err);
        }
}

static void on_curl_socket(void *context, uint32_t events);

/* The watch of a descriptor that libcurl waits for. */
struct socket_watch {
        struct remote_tunnel_helper *helper;
        curl_socket_t fd;
        struct loop_watch *watch;
};

static int on_socket_wanted(CURL *easy, curl_socket_t fd, int what, void *context, void *socket_context) {
        struct remote_tunnel_helper *helper = context;
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
        struct remote_tunnel_helper *helper = watch->helper;
        int running, what = (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                            (events & (EPOLLHUP | EPOLLERR) ? CURL_CSELECT_ERR : 0);
        (void) helper->curl.multi_socket_action(helper->multi, watch->fd, what, &running);
        read_finished_connects(helper);
}

static void on_curl_timer(void *context) {
        struct remote_tunnel_helper *helper = context;
        int running;
        helper->curl_timer = NULL;
        (void) helper->curl.multi_socket_action(helper->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        read_finished_connects(helper);
}

static int on_timer_wanted(CURLM *multi, long timeout_ms, void *context) {
        struct remote_tunnel_helper *helper = context;
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

static bool link_set_options(struct remote_tunnel_link *link) {
        const struct remote_tunnel_helper *helper = link->helper;
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

static void link_begin(struct remote_tunnel_helper *helper, int local_fd) {
        struct remote_tunnel_link *link = helper->n_links < REMOTE_TUNNELS_MAX ? calloc(1, sizeof(*link)) : NULL;
        if (!link) {
                fd_close(&local_fd);
                return;
        }
        helper->n_links++;
        link->helper = helper;
        link->local_fd = local_fd;
        link->remote_fd = CURL_SOCKET_BAD;
        if (helper->error.code != ERR_NONE) {
                remote_tunnel_link_send_error(link, &helper->error);
                return;
        }
        link->easy = helper->curl.easy_init();
        if (!remote_tunnel_link_watch_local(link) || !link->easy || !link_set_options(link)) {
                remote_tunnel_link_send_failure(link, ERR_SYSTEM, "the connection to the remote cannot be set up");
                return;
        }
        link->is_added = helper->curl.multi_add_handle(helper->multi, link->easy) == CURLM_OK;
        if (!link->is_added)
                remote_tunnel_link_send_failure(link, ERR_SYSTEM, "the connection to the remote cannot be set up");
}

static void on_connect_order(void *context, uint32_t events) {
        struct remote_tunnel_helper *helper = context;
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

static int parse_remote_url(struct remote_tunnel_helper *helper, struct err *err) {
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

static int start_curl(struct remote_tunnel_helper *helper, struct err *err) {
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
        static struct remote_tunnel_helper helper;
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
