/* A run: one piece of code or a command, from its request to its result, and its callers. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_writer.h"
#include "base/loop.h"
#include "session/run_displays.h"

struct caller;
struct err;
struct session;

enum {
        RUN_INLINE_MAX = 1 << 20, /* of each stream, in an answer that is not a stream itself */
        RUN_INLINE_WRITTEN_MAX = 2 << 20, /* the same as JSON, where a control character has six bytes */
        RUN_READERS_MAX = 32, /* callers that stream it */
        RUN_DISPLAYS_MAX = 100,
        RUN_DISPLAYS_BYTES_MAX = 3 << 20, /* of all of them together; what does not fit is left out */
};

enum run_reason {
        RUN_REASON_NONE,
        RUN_REASON_TIMEOUT,
        RUN_REASON_INTERRUPT,
        RUN_REASON_REMOVED,
        RUN_REASON_RESTARTED,
        RUN_REASON_DISK,    /* its session is past its disk limit */
        RUN_REASON_RESERVE, /* the host's disk is nearly full, and it was writing */
};

struct run {
        struct run *next;
        struct session *session;
        char id[33];
        json_t *request; /* the payload of EXECUTE, but for its id */
        size_t weight;   /* bytes of text in it */
        uint64_t timeout_ms;
        bool is_damaged; /* its request was, on the disk: it fails when its turn comes */
        uint64_t waiting_number; /* of its file while it waits (waiting_run.h); 0: there is none */
        struct err *refusal;     /* for the submitter: why it could not be started; or NULL */
        bool started;
        bool reports_loss;  /* its result has to say that variables were lost before it */
        bool is_adopted;  /* another daemon began it */
        uint64_t started_us;
        struct loop_timer *timer;
        enum run_reason reason; /* why it was ended */
        uint64_t interrupted_ms;       /* and when */
        bool killed;            /* the grace period is over */
        char why[300];          /* of a reason about the disk, in words */
        bool is_excused;        /* its session was past its disk limit already when it began: these were in use */
        uint64_t disk_bytes, disk_files;
        struct run_displays displays;
        struct caller *callers; /* those that wait for it */
};

/* Checks that there is memory for one more run with this request. The text of all runs, and that of one key's, are
 * bounded (ERR_LIMIT); small requests always fit. */
struct err;
int run_fits(const struct session *session, const json_t *request, struct err *err);

/* An unpredictable id. */
int run_make_id(char ret_id[static 33]);

/* A run with a fresh id. `code` or `argv` is in request. NULL: out of memory. */
struct run *run_make(struct session *session, json_t *request, uint64_t timeout_ms);
void run_free(struct run *run);

/* The payload of EXECUTE. */
void run_write_request(const struct run *run, struct json_writer *text);

/* The first run of a session has begun: calls `begun` of its callers, and of those of the runs behind it (caller.h). */
void run_report_begun(struct session *session);

/* Adds a caller, which gets the result and, with `stream`, the output. */
void run_add_caller(struct run *run, struct caller *caller);

/* The same for one that only reads along. ERR_LIMIT: enough do already, and all of them get what the run prints in one
 * turn. */
int run_add_reader(struct run *run, struct caller *caller, struct err *err);

/* The kernel has sent RESULT. */
struct kernel_reply;
void run_finish(struct run *run, const struct kernel_reply *reply);

/* The kernel died under it. */
void run_finish_dead(struct run *run);

/* It has ended, and its kernel lives, but its result is lost. */
void run_finish_without_result(struct run *run);

/* The run never started. If it was acknowledged, that is recorded. */
void run_fail(struct run *run, const struct err *err);

/* A display during the run, as JSON. It becomes part of the result, within the result's bounds. */
void run_add_display(struct run *run, const char *data, size_t size);

/* Answers a request for an ended run: the recorded result, with its output. */
struct journal;
struct journal_run;
void run_answer_again(struct caller *caller, const struct journal *journal, const struct journal_run *record,
                      const char *result, size_t size);

/* Sends the new output in the journal to the callers that stream. */
void run_feed(struct run *run);
void run_feed_caller(struct run *run, struct caller *caller);
