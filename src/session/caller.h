/* A request that waits for its answer: a request on the daemon's socket, or one over HTTP. The
 * session layer knows no other kind of caller, so that every front end has the same operations.
 *
 * The front end makes a caller for each request and hands it to an operation (daemon/operation.h). One answer or one
 * refusal comes back, from within that call or later; with it the caller is the front end's again, to be freed. When
 * the client disconnects first, the front end calls caller_leave and frees it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct caller;
struct session_manager;
struct run;
struct session;
struct spill;

struct caller_output {
        bool is_error; /* standard error, not standard output */
        bool is_last;  /* no more of this event follows */
        uint64_t number;
        const char *bytes;
        size_t size;
};

struct caller_type {
        /* The answer, as text: a JSON object. `json` is the same as a tree, or NULL; both borrowed. */
        void (*answer)(struct caller *caller, const char *text, size_t size, json_t *json);
        void (*refuse)(struct caller *caller, const struct err *err);

        /* The caller waits for this run, or reads it again. Called before anything else about the run. The run is
         * recorded, so a crash of the daemon does not lose it; it may still be refused if no box can be made. NULL: not
         * interested. */
        void (*accepted)(struct caller *caller, const char *run_id);

        /* The run has begun in a kernel, or waits behind one that has: from here on it has a result. Called once, after
         * `accepted` and before any output. NULL: not interested. */
        void (*begun)(struct caller *caller, const char *run_id);

        /* For callers with `stream`: a piece of a run's output, of journal event `number`; and a display. */
        void (*output)(struct caller *caller, const struct caller_output *output);
        void (*display)(struct caller *caller, const char *data, size_t size); /* JSON */
        bool (*wants_more)(const struct caller *caller);

        /* For a session of another Glovebox (daemon/remote.h): a piece of a file that is read there; and more of a file
         * may be sent. NULL: the caller has no DATA. */
        void (*data)(struct caller *caller, const char *bytes, size_t size);
        void (*room)(struct caller *caller);

        /* Sends an event with file descriptors (borrowed). 0 or -errno; it never waits. NULL: descriptors cannot be
         * sent to this caller. */
        int (*hand_over)(struct caller *caller, const char *text, const int *fds, size_t n_fds);

        const char *via; /* "socket", "http": for the audit log; NULL: acts for a caller that is recorded */
};

/* The source of an answer that arrives from another Glovebox in pieces (daemon/remote.h). */
struct caller_source {
        void (*leave)(void *context); /* the client has disconnected */
        void (*feed)(void *context); /* it has room for more */
};

struct caller {
        const struct caller_type *type;
        struct session_manager *manager;
        const char *owner; /* whose sessions it may see: a key's name, or "" for the operator, who sees all */
        bool stream;
        bool cancel_on_disconnect;
        bool is_begun; /* `begun` was called */
        uint64_t cursor; /* number of the next journal event to send */
        const char *operation; /* the operation, until it is recorded; or NULL */
        char about[104]; /* the session's name that it gave, or "" */
        const char *from; /* where it is, or NULL; borrowed */
        uint64_t asked_ms;

        /* the list in which it waits: of a run, of a session that goes to sleep, or of callers that have output left to
         * read */
        struct run *run;
        struct caller *next;
        struct session *session;
        struct spill *spill;
        const struct caller_source *source; /* or NULL */
        void *source_context;
        struct caller **held_by; /* a pointer to it elsewhere, or NULL; cleared when the caller ends */

        /* the caller that acts for it and will answer it, and the reverse (session/install.c) */
        struct caller *stand_in, *behalf_of;
};

/* Begins this operation on that session (NULL: none), whose end will be recorded in the audit log. Every operation
 * calls it; a second call does nothing. */
void caller_begin(struct caller *caller, const char *operation, const char *session);

/* The request is over, with "ok" or the name of an error: writes the line of the audit log, once. caller_answer and
 * caller_refuse call it; a front end that answers by itself (a file in pieces) must call it. */
void caller_done(struct caller *caller, const char *status);

/* The session of this name that the caller may see; else NULL with ERR_NOT_FOUND, or with ERR_USAGE if name is NULL. */
struct session *caller_find_session(const struct caller *caller, const char *name, struct err *err);

/* Calls `begun`, unless it was called before. */
void caller_report_begun(struct caller *caller, const char *run_id);

/* Takes the reference. */
void caller_answer(struct caller *caller, json_t *answer);
void caller_answer_text(struct caller *caller, const char *text, size_t size, json_t *json);
void caller_refuse(struct caller *caller, const struct err *err);

/* The client has disconnected. The run continues unless cancel_on_disconnect is set. The front end frees the caller. */
void caller_leave(struct caller *caller);

/* The run for which it waits, itself or through the caller that acts for it. NULL: none, or none yet. */
struct run *caller_run(const struct caller *caller);

/* Call it when the client can take more of the stream. It may answer, and the caller may be freed. */
void caller_feed(struct caller *caller);

static inline bool caller_is_operator(const struct caller *caller) {
        return caller->owner[0] == '\0';
}
