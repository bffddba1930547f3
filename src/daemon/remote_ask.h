/* One operation at the remote, started by a front end for one of its requests. REST and MCP have no DATA messages, and
 * may need several operations for one request (stat, then read). docs/PROTOCOL.md has the operations.
 *
 * Back-pressure goes both ways: `data` says whether more may come, and remote_ask_send whether more may go. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct caller;
struct remote_ask;
struct session;

struct remote_ask_events {
        /* A piece of a file. False: send no more until remote_ask_feed. NULL if no file is read. */
        bool (*data)(void *context, const char *bytes, size_t size);
        /* Most of the queue was sent. NULL if no file is sent. */
        void (*room)(void *context);
        /* The last call, made once: the answer, a JSON object as text; or `text` NULL and the error. Never called from
         * within a function of this header. */
        void (*done)(void *context, const char *text, size_t size, const struct err *err);
};

/* Asks on behalf of a caller, which stays the front end's: `op` and its other members (the reference is taken; NULL:
 * none). -1: `done` is never called. */
int remote_ask_begin(const struct caller *behalf, struct session *session, const char *op, json_t *fields,
                     const struct remote_ask_events *events, void *context, struct remote_ask **ret_ask,
                     struct err *err);

/* Makes the session at the remote, unless it has it: that happens with the first run or file. 1: the remote has it, and
 * no request was sent. */
int remote_ask_make(const struct caller *behalf, struct session *session, const struct remote_ask_events *events,
                    void *context, struct remote_ask **ret_ask, struct err *err);

/* A piece of a file that is sent there. 1: wait for `room` before the next. */
int remote_ask_send(struct remote_ask *ask, const char *bytes, size_t size, struct err *err);

/* The file is whole: `done` follows. */
int remote_ask_send_end(struct remote_ask *ask, struct err *err);

/* `data` may be called again. */
void remote_ask_feed(struct remote_ask *ask);

/* Drops the operation (NULL: does nothing); `done` is not called. A file that was sent in part is not written. */
void remote_ask_drop(struct remote_ask *ask);
