/* One box with a kernel while it is being made: what spawn_job.c and spawn_elsewhere.c share. */
#pragma once

#include <jansson.h>

#include "box/box.h"
#include "box/seal/box_clone.h"
#include "spawn/spawn_job.h"

#define SESSION_DIR "/run/session"

enum {
        MOUNTS_MAX = 32,
        SCRIPT_MAX_BYTES = 4 << 20, /* as much as `glovebox run` reads */
        OUTPUT_PIPE_BYTES = 1 << 20,
        ENV_MAX = 256 /* beside our own few */,
        KERNEL_FDS = 5 /* 0, 1, 2, requests, replies */
};

/* Everything that is open while one box is being made. */
struct spawn_job {
        struct maker_request own_request;
        const struct maker_request *request; /* that one */
        const struct maker_settings *settings;
        const struct cgroup_host *host;
        struct nursery *nursery; /* whose supervisor has the box; NULL: none */
        bool for_pool, from_pool;
        bool is_served; /* of another engine: its files are handled by a server of its runtime, which is root */
        json_t *options;
        struct image image;
        uint64_t fingerprint; /* of the image */
        int lease_fd, workspace_fd, listener_fd;
        bool has_users; /* spec.h; its `uid` is one of many */
        bool is_plain;  /* of another engine, and the daemon is not root: sources instead of trees */
        bool is_leased; /* the box has a user of its own, to whom the ids of files are mapped */
        uid_t uid;
        gid_t gid;
        struct box_mount mounts[MOUNTS_MAX];
        size_t n_mounts;
        char *env[ENV_MAX + 5]; /* the caller's, four of the spawn job, NULL */
        char **environment; /* all of it, for the kernel */
        struct box_spec spec;
        struct box_birth birth;
        bool is_settling; /* the birth is under way, and the box is not there yet */
        struct box box;
        int ours[MAKER_FDS], theirs[KERNEL_FDS]; /* the ends of the kernel's channels */
        bool is_sealing; /* the kernel was forked, and is not sealed yet */
        struct nursery_child child;
};

void spawn_job_clear(struct spawn_job *job); /* a new one, all zeros: no descriptor is open */

int spawn_job_read_env(struct spawn_job *job, struct err *err);
char **spawn_job_make_environment(struct spawn_job *job, struct err *err);

/* Opens everything that the box will see: the workspace, and the rest as job->mounts. */
int spawn_job_open_trees(struct spawn_job *job, struct err *err);

/* For a ready box: the workspace is one more mount, which covers the box's own. */
int spawn_job_open_late_trees(struct spawn_job *job, struct err *err);

/* The box is ready: makes the kernel's pipes, and lets it be forked (job->is_sealing then) or executed. */
int spawn_job_start_kernel(struct spawn_job *job, struct err *err);

/* Moves the descriptors of box and kernel to the reply. */
void spawn_job_give(struct spawn_job *job, struct maker_reply *reply);
