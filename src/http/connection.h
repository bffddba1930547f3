/* One connection as a state machine: bytes in, calls to the handler, bytes out. It has no descriptor and no clock
 * (conn_io.c has those), so that a test or a fuzzer can drive all of it.
 *
 *     IDLE ──▶ HEAD ──▶ BODY ──▶ ANSWER ──▶ IDLE      one api_request after the other
 *                         │         │
 *                         ├─▶ DISCARD ─▶ IDLE          answered before its body was read; the rest is small
 *                         └─────────┴──▶ LAST          answered or refused for the last time: flush, close
 *     any ──▶ GONE                                     nothing can be sent any more */
#pragma once

#include "http/body.h"
#include "http/head.h"
#include "http/http.h"
#include "http/limits.h"
#include "http/out.h"

enum http_phase {
        PHASE_IDLE, /* no byte of a request is there */
        PHASE_HEAD,
        PHASE_BODY,    /* the handler was called; the body is not whole */
        PHASE_ANSWER,  /* the body is whole; the answer is not */
        PHASE_DISCARD, /* the answer is whole; the rest of the body is thrown away */
        PHASE_LAST,    /* what is queued still goes out; what comes in is thrown away */
        PHASE_GONE,
        PHASES
};

enum http_answer {
        ANSWER_NONE, /* no request is in the handler's hands */
        ANSWER_OWED,
        ANSWER_FIXED, /* begun, and these are its kinds */
        ANSWER_CHUNKED,
        ANSWER_TO_CLOSE,
};

struct http_request {
        struct http_head head;
        struct http_body body;
        uint64_t body_max;
        const struct http_events *events;
        void *context;
        bool reported_end, sent_continue;

        struct http_out fields; /* headers of the answer */
        unsigned replaced;      /* bits of the default headers that are among them */
        bool is_bodiless;       /* HEAD, 204, 304: what is written is thrown away */
        uint64_t answer_left;   /* of an ANSWER_FIXED */
        bool wants_drained;     /* a write returned "wait" */
};

struct http_connection {
        struct http_request request; /* first: a request is found in its connection by a cast */
        enum http_phase phase;
        enum http_answer answer;
        bool keeps;       /* another request may follow this one */
        bool must_linger; /* PHASE_LAST with unread bytes under way */
        bool input_ended;
        bool is_busy; /* in feed or drained: `wake` is not needed */
        struct http_out out;
        char holder[HTTP_HOLDER_MAX + 1]; /* "" until a request names it */
        struct http_peer peer;
        const struct http_handler *handler;
        struct http_counters *counters;
        size_t head_counted; /* its part of counters->heads */
        size_t collected;    /* its part of counters->collected */
        uint64_t n_requests;
        void (*wake)(struct http_connection *connection); /* there is something to send or to take, from the loop */
};

/* `connection` is zeroed by the caller, who has set handler, counters, peer and wake. */
void http_connection_begin(struct http_connection *connection);
void http_connection_free(struct http_connection *connection);

/* True if it takes bytes now. While it does not, the caller keeps them. */
bool http_connection_wants_input(const struct http_connection *connection);

/* Consumes bytes while it can; returns how many. Also without bytes: runs callbacks that are due. */
size_t http_connection_feed(struct http_connection *connection, const char *bytes, size_t size);

/* No byte will follow. */
void http_connection_end_input(struct http_connection *connection);

/* Runs on_drained of a waiting stream, if little is queued. */
void http_connection_report_drained(struct http_connection *connection);

/* Refuses the client's request: answers with a problem if that is still possible, then closes. */
void http_connection_refuse(struct http_connection *connection, int status, const char *why);

/* The client has left or cannot be written to. */
void http_connection_abandon(struct http_connection *connection);

/* ---- for response.c ---- */

static inline struct http_connection *http_connection_of(const struct http_request *request) {
        return (struct http_connection *) (uintptr_t) request;
}

/* The answer has been queued to its end (or cut off, when not is_whole): the request leaves the handler's hands. */
void http_connection_answered(struct http_connection *connection, bool is_whole);

/* True if the connection would continue, were the answer complete now. */
bool http_connection_can_keep(const struct http_connection *connection);
void http_connection_wake(struct http_connection *connection);

/* Queues a problem and ends the answer; no callback. */
void http_problem_queue(struct http_connection *connection, int status, const char *code, const char *detail,
                        const char *remedy);
