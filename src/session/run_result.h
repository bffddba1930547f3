/* The result of a run, from its kernel's reply or from how the kernel died, and its JSON form. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_writer.h"
#include "box/cgroup/cgroup.h"

struct run;

struct run_result {
        const char *run_id;
        const char *status;
        int64_t exit_code;
        int64_t execution_count; /* the kernel's count; 0: not reported */
        bool timed_out, oom_killed, variables_lost;
        char warning[300]; /* beside the run itself, or "" */
        uint64_t duration_ms;
        struct cgroup_usage usage;
        struct json_writer own_error; /* the daemon's; or else the kernel's, borrowed; both empty: null */
        const char *error;
        size_t error_size;
        const char *value; /* of the last expression: JSON, borrowed; NULL: none */
        size_t value_size;
        const struct json_writer *displays; /* of an array, without its brackets; NULL: there are none */
        struct json_writer artifacts;       /* an array; owned */
        json_t *wake_report; /* what did not come back from a sleep before this run; owned, or NULL */
};

/* The result that the kernel reported, corrected where the daemon has better information. Borrows from the reply. */
struct kernel_reply;
void run_result_judge(const struct run *run, const struct kernel_reply *reply, struct run_result *ret_result);

/* The reason for a kernel's end. */
void run_result_judge_dead(const struct run *run, struct run_result *ret_result);

/* A run whose end is unknown, or which never began. The texts are borrowed. */
void run_result_judge_lost(const char *run_id, const char *status, const char *name, const char *message,
                           struct run_result *ret_result);

void run_result_release(struct run_result *result);

/* Writes the object, but not its closing brace. *ret_small is where it could be closed instead, without the parts that
 * may be large. */
void run_result_write(const struct run_result *result, struct json_writer *text, size_t *ret_small);

/* Closes it there: says that the parts are missing. */
void run_result_put_cut(const struct run_result *result, struct json_writer *text);
