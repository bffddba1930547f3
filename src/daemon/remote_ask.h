/* One operation at the remote that a front end asks for beside its own caller: REST and MCP have no DATA messages, and
 * may need several operations for one request of theirs (what is there, then its bytes). docs/PROTOCOL.md has the
 * operations.
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
        /* A piece of a file. False: no more until remote_ask_feed. NULL for what sends none. */
        bool (*data)(void *context, const char *bytes, size_t size);
        /* What was to be sent has gone, up to little. NULL for what is not sent a file. */
        void (*room)(void *context);
        /* Once, and the last: the answer, a JSON object as text, or `text` NULL and why. Never from within a function
         * of this header. */
        void (*done)(void *context, const char *text, size_t size, const struct err *err);
};

/* Asks on behalf of a caller, which stays the front end's: `op` and its other members (the reference is taken; NULL:
 * none). -1: `done` is never called. */
int remote_ask_begin(const struct caller *behalf, struct session *session, const char *op, json_t *fields,
                     const struct remote_ask_events *events, void *context, struct remote_ask **ret_ask,
                     struct err *err);

/* The session, where the remote may not have it yet: it is made there with its first run or file. 1: it has, nothing
 * is asked. */
int remote_ask_make(const struct caller *behalf, struct session *session, const struct remote_ask_events *events,
                    void *context, struct remote_ask **ret_ask, struct err *err);

/* A piece of a file that is sent there. 1: wait for `room` before the next. */
int remote_ask_send(struct remote_ask *ask, const char *bytes, size_t size, struct err *err);

/* The file is whole: `done` follows. */
int remote_ask_send_end(struct remote_ask *ask, struct err *err);

/* There is room for more `data`. */
void remote_ask_feed(struct remote_ask *ask);

/* Nobody waits for it any more, and `done` is not called. NULL is fine. A file that is not whole is not written. */
void remote_ask_drop(struct remote_ask *ask);
