/* A strict HTTP/1.1 server inside a loop: no threads, every buffer bounded, bodies streamed both ways.
 *
 * The life of a request. The server calls `handle` once its head has been read and found good. From then on the request
 * belongs to the handler until the handler ends its answer (http_respond, http_problem, http_stream_end,
 * http_stream_abort), or until on_gone reports that the client has left, broke the protocol or was too slow. After
 * either, the pointer is dead: the same memory carries the next request. A handler need not answer at once. While it
 * has not, no further request of the connection is looked at, so that answers leave in the order of their requests.
 *
 * No callback is ever called from within a function of this header: they come from the loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"

struct http_server;
struct http_request;

/* ---- the server ---- */

struct http_options {
        const char *tcp_host;  /* an address, or "localhost" for both loopbacks; NULL: no TCP */
        uint16_t tcp_port;     /* 0: any; http_server_port says which */
        const char *unix_path; /* NULL: no UNIX socket; made with mode 0600, answers its owner and root only */

        /* 0 means the default, in parentheses. */
        unsigned connections_max; /* (1024) past it a silent or idle one is closed, or the new one gets 503 */
        unsigned head_ms;         /* (10 000) from the first byte of a head, or from the accept, to its last */
        unsigned idle_ms;         /* (60 000) between two requests */
        unsigned body_window_ms;  /* (10 000) in each of these spans of time ... */
        unsigned body_window_min; /* (10 KiB) ... at least so many bytes of the body have to come */
        unsigned stall_ms;        /* (30 000) a client that does not read its response */
        unsigned linger_ms;       /* (2 000) after a refusal, for the client to read it */
};

struct http_handler {
        void (*handle)(void *context, struct http_request *request);
        /* May this one have so many bytes of memory for its body, beside those that others have? NULL: it may. */
        bool (*has_room)(void *context, const struct http_request *request, size_t bytes);
        void *context;
};

/* What happened since the start. Now: `open`; `collected`, the room of bodies that are read whole; `heads`, what long
 * heads hold. */
struct http_counters {
        uint64_t open, accepted, turned_away, requests, refused, timeouts, bytes_in, bytes_out, collected, heads;
};

/* The options and the handler are copied, the loop is borrowed. */
int http_server_open(struct loop *loop, const struct http_options *options, const struct http_handler *handler,
                     struct http_server **ret_server, struct err *err);

/* Not from within a callback of the server. Every request that is under way sees on_gone. NULL is fine. */
void http_server_close(struct http_server *server);

/* Accepts nothing more, closes idle connections, and closes each other one after its answer. Calls on_drained, once,
 * from the loop, when the last has gone. */
void http_server_drain(struct http_server *server, void (*on_drained)(void *context), void *context);

uint16_t http_server_port(const struct http_server *server); /* 0 without TCP */
const struct http_counters *http_server_counters(const struct http_server *server);
/* Bytes of answers that clients have not taken yet; with a holder, those on connections of that one. */
uint64_t http_server_queued(const struct http_server *server, const char *holder);
/* The same of the memory of bodies that are read whole. */
uint64_t http_server_collected(const struct http_server *server, const char *holder);

/* ---- the request ---- */

struct http_peer {
        bool is_unix;
        uid_t uid; /* of a UNIX peer */
        char address[64]; /* "127.0.0.1", "::1", or "unix" */
};

/* The name of the client of this connection, from its last request. Copied; longer names are cut. */
void http_set_holder(struct http_request *request, const char *holder);

const char *http_holder(const struct http_request *request); /* "" until there is one */
const char *http_method(const struct http_request *request);
const char *http_path(const struct http_request *request); /* as sent: percent-encoded, begins with a slash */
const char *http_query(const struct http_request *request); /* as sent, without the question mark; NULL: none */
const char *http_host(const struct http_request *request); /* the Host header; its grammar has been checked */
const struct http_peer *http_peer(const struct http_request *request);

/* The first header of that name (in any case), or NULL. Those that decide something (Host, Content-*, Authorization,
 * Origin, Range, ...) cannot come twice: such a request is refused before any handler sees it. */
const char *http_header(const struct http_request *request, const char *name);

/* 0: there is no body; -1: chunked, so unknown. */
int64_t http_content_length(const struct http_request *request);

/* Callbacks of a handler; any may be NULL. on_gone comes at most once, and nothing comes after it. */
struct http_events {
        void (*on_body)(void *context, const char *bytes, size_t size); /* a piece, in order; borrowed for the call */
        void (*on_body_end)(void *context); /* also for a request without a body */
        void (*on_drained)(void *context); /* the stream takes more again */
        void (*on_gone)(void *context);
};

/* Sets the callbacks; may be called again to change them. With on_body, the body starts to flow, and a client that
 * waits for "100 Continue" gets it. Callbacks without on_body and on_body_end pause it: the client has to wait.
 * `events` is borrowed for the request's life. */
void http_attend(struct http_request *request, const struct http_events *events, void *context);

/* Refuses a longer body with 413. False: it is known to be too long already, that was answered, and the request is gone
 * (on_gone is not called). A chunked one may be found out later: then on_gone comes. */
bool http_limit_body(struct http_request *request, uint64_t max);

/* Reads the whole body, up to max, and gives it with a NUL after it (borrowed for the call). When the client leaves
 * first or sends more, `request` and `bytes` are NULL in that call. 0, or -1: answered already, nothing is called. */
int http_collect_body(struct http_request *request, size_t max,
                      void (*on_whole)(void *context, struct http_request *request, const char *bytes, size_t size),
                      void *context);

/* ---- the answer ---- */

/* Adds a header to the answer to come. -EINVAL: not a header, or one that the server writes itself; -ENOBUFS: too many.
 * It replaces a header of the same name that the server adds by default (Cache-Control, Content-Security-Policy). */
int http_add_header(struct http_request *request, const char *name, const char *value);

/* The whole answer in one. `type` NULL: no Content-Type. HEAD gets the head of it, 204 and 304 no body. -errno: nothing
 * was queued and the request still waits for an answer (-EFBIG: stream it, -EINVAL: a type that is no header value). */
int http_respond(struct http_request *request, int status, const char *type, const void *bytes, size_t size);

/* An error as application/problem+json (RFC 9457): `code` is the stable name ("not_found"), `detail` says what happened
 * and why, `remedy` what to do (NULL: the detail says it). */
void http_problem(struct http_request *request, int status, const char *code, const char *detail, const char *remedy);
void http_problem_err(struct http_request *request, const struct err *err);

/* An answer in pieces: of that length, or HTTP_CHUNKED when it is not known. HTTP/1.0 clients get the latter ended by
 * the close of the connection. 0 or -errno as http_respond. */
enum { HTTP_CHUNKED = -1 };
int http_stream_begin(struct http_request *request, int status, const char *type, int64_t length);

/* 0: taken, go on. 1: taken, but wait for on_drained before the next. -errno: not taken (-ENOBUFS: the queue is full,
 * since on_drained was not waited for; -EMSGSIZE: more than the length that was announced). */
int http_stream_write(struct http_request *request, const void *bytes, size_t size);
bool http_stream_wants_more(const struct http_request *request);

/* The answer is whole. Short of the announced length it cannot be: then this is http_stream_abort. */
void http_stream_end(struct http_request *request);

/* Ends an incomplete answer so that the client notices: sends what is queued, then closes the connection without the
 * end mark. */
void http_stream_abort(struct http_request *request);

/* ---- another protocol on the same connection ---- */

/* For a request with "Upgrade: PROTOCOL" and no body: answers 101 and returns the connection's socket (owned by the
 * caller, nonblocking). The request is freed. -EPROTO: it does not ask for this protocol; -errno: it cannot be done; in
 * both cases the request still waits for an answer. */
int http_take_socket(struct http_request *request, const char *protocol);
