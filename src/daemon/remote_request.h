/* One request that is passed on to the remote, until its answer (remote.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "session/caller.h"

enum remote_trait {
        REMOTE_AGAIN = 1,    /* repeated if the connection breaks */
        REMOTE_RUN = 2,      /* has a run id, and events */
        REMOTE_SESSION = 4,  /* its answer describes the session */
        REMOTE_UPLOAD = 8,   /* DATA of the client follows */
        REMOTE_DOWNLOAD = 16,
        REMOTE_REMOVAL = 32, /* removes the session here too */
};

struct remote_order {
        struct caller *caller;
        struct session *session; /* NULL: an ephemeral run, */
        const struct remote_place *place; /* which is there; else NULL */
        json_t *json;            /* as the remote gets it; a new reference is taken */
        const char *code;        /* copied, or NULL: sent as DATA */
        size_t code_size;
        unsigned traits;
        bool is_new; /* the session was made for this request and is removed if it is refused */
        bool detach;
        const char *run_id; /* of REMOTE_RUN */
};

int remote_request_begin(const struct remote_order *order, struct err *err);

/* For a caller with a REMOTE_UPLOAD and without DATA messages: sends a piece, or its end. 1: wait for caller_type.room
 * before the next. */
int remote_request_send(struct caller *caller, const char *bytes, size_t size, struct err *err);
int remote_request_send_end(struct caller *caller, struct err *err);
