/* The server: its listeners, its connections, and the room they share. */
#pragma once

#include "http/http.h"
#include "http/limits.h"

struct http_conn_io;
struct http_listener;

struct http_server {
        struct loop *loop;
        struct http_options options; /* with the defaults filled in */
        struct http_handler handler;
        struct http_counters counters;
        struct http_listener *listeners[HTTP_LISTENERS_MAX];
        size_t n_listeners;
        struct http_conn_io *links; /* all of them; oldest last */
        char *scratch;           /* HTTP_READ_SIZE bytes, for one read at a time */
        int reserve_fd; /* given up for a moment when there is no other, to take a connection and refuse it */
        bool is_draining;
        void (*on_drained)(void *context);
        void *drained_context;
        struct loop_timer *drained_timer;
};

/* A connection has ended. */
void http_server_forget(struct http_server *server, struct http_conn_io *link);
