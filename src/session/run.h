/* A run: one piece of code on its way through a kernel, and who listens to it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "session/json_text.h"

struct asker;
struct session;

enum { RUN_INLINE_MAX = 1 << 20 }; /* of each stream, in an answer that is not a stream itself */

enum run_reason { RUN_REASON_NONE, RUN_REASON_TIMEOUT, RUN_REASON_INTERRUPT, RUN_REASON_REMOVED };

struct run {
        struct run *next;
        struct session *session;
        char id[33];
        json_t *request; /* the payload of EXECUTE, but for its id */
        size_t weight;   /* bytes of text in it */
        uint64_t timeout_ms;
        bool started;
        uint64_t started_us;
        struct loop_timer *timer;
        enum run_reason reason; /* why it was told to end */
        uint64_t told_ms;       /* and when */
        bool killed;            /* the grace period is over */
        json_t *displays;
        struct asker *askers; /* who waits for it */
};

/* Is there room for one more with this request? All that there are together have a bound; small ones always fit. */
bool run_fits(const struct session *session, const json_t *request);

/* A run with a fresh id. `code` or `argv` is in request. NULL: out of memory. */
struct run *run_make(struct session *session, json_t *request, uint64_t timeout_ms);
void run_free(struct run *run);

/* The payload of EXECUTE. */
void run_write_request(const struct run *run, struct json_text *text);

/* One more waits for its result and, with `stream`, for its output. */
void run_add_asker(struct run *run, struct asker *asker);

/* The kernel said RESULT (payload parsed, or NULL when it was nonsense). */
void run_finish(struct run *run, const json_t *outcome);

/* The same from the text of the payload; false, and nothing has happened, when it must be parsed first. */
bool run_finish_plain(struct run *run, const char *payload, size_t size);

/* The kernel died under it. */
void run_finish_dead(struct run *run);

/* It was taken over from a daemon that had not sent it yet. */
void run_finish_unsent(struct run *run);

/* It never started. */
struct err;
void run_fail(struct run *run, const struct err *err);

/* Something was shown while the run is on. */
void run_tell_display(struct run *run, json_t *data);

/* Sends what the journal has and those who stream have not. */
void run_feed(struct run *run);
void run_feed_asker(struct run *run, struct asker *asker);
