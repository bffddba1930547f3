/* The state of a `glovebox run`, with and without a daemon: its workspace, its relay, its usage, and the report at its
 * end. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "box/cgroup/cgroup.h"
#include "box/policy.h"
#include "cli/relay.h"
#include "cli/run_request.h"
#include "store/artifact.h"

struct run {
        const struct run_request *request;
        char id[33];
        char data_dir[4096];
        int workspace_fd;        /* the tree shown in the box */
        int workspace_source_fd; /* the directory that --workspace named, or -1 */
        char workspace_path[4096];
        bool had_artifacts_dir;
        struct artifact_list before, artifacts;
        struct relay relay;
        struct cgroup_usage usage;
        json_t *isolation; /* owned */
        char last_words[RELAY_TAIL_BYTES]; /* the end of a script's standard error */
};

#define RUN_NONE                                                                                                       \
        ((struct run) { .workspace_fd = -1,                                                                            \
                        .workspace_source_fd = -1,                                                                     \
                        .relay = { .out = { .from_fd = -1 }, .error = { .from_fd = -1 }, .input_to_fd = -1 } })

/* Its id, and where Glovebox keeps its data. */
int run_begin(const struct run_request *request, struct run *ret_run, struct err *err);
void run_release(struct run *run);

struct policy run_policy(const struct run *run);

/* Opens the directory that --workspace names, if one is named, and looks at what is in it. The mount policy is asked
 * here, or, if another process mounts it, there (`policy` is NULL). */
int run_open_workspace(struct run *run, const struct policy *policy, struct err *err);

/* Three pipes: their ends for the program, and the relay between ours and the caller's streams. */
int run_open_pipes(struct run *run, struct relay_target *target, int ret_theirs[static 3], struct err *err);

/* The same for pipes that are there already, and in the relay. */
void run_fill_relay(struct run *run, struct relay_target *target);

/* The program has ended: collects its artifacts and prints the report. Returns the exit status, or -1 with err. */
int run_conclude(struct run *run, struct err *err);
