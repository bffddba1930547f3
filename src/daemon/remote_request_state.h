/* A request that was passed on to the remote, as its files share it: remote_request.c connects and asks,
 * remote_reply.c passes on what comes back, remote_upload.c sends what the caller sends. */
#pragma once

#include "daemon/remote.h"
#include "daemon/upload.h"
#include "session/manager.h"
#include "session/remote_place.h"

enum {
        REMOTE_REQUEST_NUMBER = 1,          /* of the only request of a connection */
        REMOTE_REQUEST_QUEUE_HIGH = 1 << 20, /* beyond it a client that sends a file waits */
};

struct remote_upload {
        struct upload upload;
        struct remote_request *request; /* NULL: over */
};

struct remote_request {
        struct caller *caller; /* NULL: has left */
        struct session_manager *manager;
        struct remote_place place;
        char session_id[32], session_name[136], remote_name[REMOTE_NAME_MAX];
        json_t *json;
        char *code;
        size_t code_size;
        unsigned traits;
        bool is_new, detach;

        int fd; /* -1: not connected now */
        bool is_fresh, has_answered; /* the connection; the remote has sent something on it */
        struct loop_watch *watch;
        struct message_parser parser;
        struct message_queue queue;
        struct loop_timer *timer; /* for the next try, or for the answer */
        uint64_t away_since_ms;   /* 0: it is not */
        uint64_t pause_ms;

        char run_id[33];
        bool is_started;
        uint64_t number;   /* of the last event that was passed on, ... */
        uint64_t passed;   /* ... how much of it, ... */
        bool is_error;
        uint64_t skip;     /* ... and how much comes again */
        uint64_t received; /* bytes of a file */
        struct remote_upload *upload;
};

void remote_request_free(struct remote_request *request, bool keeps_connection);

/* Its session here, or NULL: it is of an ephemeral run, or was removed. */
struct session *remote_request_session(const struct remote_request *request);

/* Notes the state of the session there; ignores NULL, and what is no plain word. */
void remote_request_note_state(const struct remote_request *request, const char *state);

/* Answers the caller, and frees the request. */
void remote_request_refuse(struct remote_request *request, const struct err *err, bool keeps_connection);
/* After the connection was lost, or (why) could not be made. Refuses the request if it cannot be sent again. */
void remote_request_reconnect(struct remote_request *request, const struct err *why);

/* The request of a caller, or NULL. */
struct remote_request *remote_request_of(const struct caller *caller);

/* Watches the connection again: there is something to send, or the caller reads again. */
void remote_request_watch(const struct remote_request *request);

/* Passes on the DATA of a client of the daemon's socket, and its end. */
int remote_upload_expect(struct remote_request *request, struct err *err);
void remote_upload_drop(struct remote_request *request);
