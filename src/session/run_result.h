/* How a run ended: judged from what its kernel said, or from how the kernel died, and written as JSON. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "box/cgroup.h"
#include "session/json_text.h"

struct run;

struct run_result {
        const char *run_id;
        const char *status;
        int64_t exit_code;
        bool timed_out, oom_killed, variables_lost;
        uint64_t duration_ms;
        struct cgroup_usage usage;
        json_t *error;     /* owned, or NULL */
        json_t *value;     /* of the last expression; owned, or NULL */
        const char *plain; /* instead of it: its JSON as text, borrowed */
        size_t plain_size;
        json_t *artifacts; /* owned */
        const json_t *displays;
};

/* The kernel's own word (NULL when it was nonsense), corrected by what we know better. */
void run_result_judge(const struct run *run, const json_t *outcome, struct run_result *ret_result);

/* The same from the text of RESULT, when it is of the most frequent kind: all went well, and the last expression has
 * no value or a short one of plain characters. False: it is another kind, or no such answer at all; parse it. */
bool run_result_judge_plain(const struct run *run, const char *payload, size_t size, struct run_result *ret_result);

/* Why a kernel that is gone is gone. */
void run_result_judge_dead(const struct run *run, struct run_result *ret_result);

/* One that a daemon wrote down as begun, and died. */
void run_result_judge_unsent(const struct run *run, struct run_result *ret_result);

void run_result_release(struct run_result *result);

/* Writes the object, but not its closing brace. *ret_small is where it could be closed instead, without the parts that
 * may be large. */
void run_result_write(const struct run_result *result, struct json_text *text, size_t *ret_small);
