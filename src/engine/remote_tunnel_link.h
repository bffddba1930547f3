/* One connection of the helper that connects to a remote, once libcurl has connected: the upgrade of HTTP to a channel,
 * and the bytes in both directions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/loop.h"
#include "engine/curl_library.h"
#include "engine/remote_tunnel_settings.h"

enum { REMOTE_TUNNEL_BUFFER_BYTES = 64 << 10 };

struct pipe_buffer {
        size_t start, end;
        char bytes[REMOTE_TUNNEL_BUFFER_BYTES];
};

enum remote_tunnel_link_state {
        LINK_CONNECTING, /* libcurl connects */
        LINK_UPGRADING, /* the request for the upgrade was made */
        LINK_OPEN,
};

struct remote_tunnel_link {
        struct remote_tunnel_helper *helper;
        enum remote_tunnel_link_state state;
        int local_fd;
        CURL *easy;
        bool is_added; /* to the multi handle */
        curl_socket_t remote_fd;
        struct loop_watch *local_watch, *remote_watch;
        struct loop_timer *timer; /* limits the time until it is open */
        struct pipe_buffer to_remote, to_daemon;
        char error[CURL_ERROR_SIZE];
};

struct remote_tunnel_helper {
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

/* Watches the daemon's end, and limits the time until the connection is open. False: no memory. */
bool remote_tunnel_link_watch_local(struct remote_tunnel_link *link);

/* Requests the upgrade on link->remote_fd; passes on bytes after it. May free the link. */
void remote_tunnel_link_request_upgrade(struct remote_tunnel_link *link);

/* Each tells the daemon why there is no connection, and frees the link. */
void remote_tunnel_link_send_error(struct remote_tunnel_link *link, const struct err *why);
void remote_tunnel_link_send_failure(struct remote_tunnel_link *link, enum err_code code, const char *what);
