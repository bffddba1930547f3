/* A connection's descriptor and its deadlines: it moves bytes between the socket and the state machine of connection.c,
 * and ends what takes too long. */
#pragma once

#include "http/connection.h"
#include "http/server.h"

enum http_deadline { DEADLINE_NONE, DEADLINE_IDLE, DEADLINE_HEAD, DEADLINE_BODY, DEADLINE_SEND, DEADLINE_LINGER };

struct http_conn_io {
        struct http_connection connection; /* first: `wake` finds the link by a cast */
        struct http_server *server;
        struct http_conn_io *next, *previous;
        int fd;
        struct loop_watch *watch;
        uint32_t watched;
        struct loop_timer *turn; /* there is work to do at the end of this turn of the loop */

        /* Bytes that were read and that the connection does not take yet. */
        char *input;
        size_t input_start, input_end;

        /* One timer, set for the deadline or for some moment before it: moving the deadline back costs nothing. */
        struct loop_timer *timer;
        uint64_t timer_at_ms, deadline_ms;
        enum http_deadline deadline;

        enum http_phase marked_phase; /* what `since_ms` is about */
        uint64_t marked_request, since_ms;
        bool marked_wait;
        uint64_t window_received; /* of the body, when the window began */
        uint64_t sent_ms; /* the last time that the client took something, or had nothing to take */
        bool has_unsent;
        uint64_t lingered; /* bytes thrown away in PHASE_LAST */
        bool is_shut; /* our direction is closed */
};

/* Owns the descriptor from here on, also when it fails (-errno). */
int http_conn_io_open(struct http_server *server, int fd, const struct http_peer *peer);

/* Ends it at once; on_gone of an open request is called. Not from within its own callbacks. */
void http_conn_io_close(struct http_conn_io *link);

/* No request is under way, none has begun, and nothing waits to be sent. */
bool http_conn_io_is_idle(const struct http_conn_io *link);

/* True if no whole request has arrived yet. */
bool http_conn_io_is_unproven(const struct http_conn_io *link);

/* The request under way is the last one. */
void http_conn_io_drain(struct http_conn_io *link);
