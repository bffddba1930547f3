/* Requests of the maker to a supervisor. Both are parts of one program, so plain structs are sent. */
#pragma once

#include <stddef.h>

#include "box/seal/stage.h"
#include "spawn/supervisor.h"

enum supervisor_request_kind { SUPERVISOR_CLONE_BOX, SUPERVISOR_START_NURSERY, SUPERVISOR_WATCH };

struct supervisor_request {
        enum supervisor_request_kind kind;
        struct limits limits;
        uid_t uid; /* of the box, as N sees it */
        gid_t gid;
        bool has_memory_cgroup, has_pids_cgroup;
        bool makes_template, from_template; /* of a box: box/seal/rootfs_template.h */
        bool light; /* which of the two nurseries */
        pid_t pid;  /* to watch, as N sees it */
        char preload[SUPERVISOR_PRELOAD_MAX]; /* see box/seal/nursery_stage.h */
        size_t n_mounts;
        bool has_image; /* from here on only the used part is sent */
        struct image image; /* its descriptors are among the slots */
        struct {
                bool is_directory, writable;
                char destination[SUPERVISOR_DESTINATION_MAX];
        } mounts[SUPERVISOR_MOUNTS_MAX];
};

/* How much of it is sent. */
static inline size_t supervisor_request_size(const struct supervisor_request *request) {
        if (!request->has_image)
                return offsetof(struct supervisor_request, image);
        return offsetof(struct supervisor_request, mounts) + request->n_mounts * sizeof(request->mounts[0]);
}

enum supervisor_slot {
        SUPERVISOR_SYNC,
        SUPERVISOR_CONTROL,
        SUPERVISOR_AGENT,
        SUPERVISOR_LISTENER, /* of a box with a network */
        SUPERVISOR_WORKSPACE,
        SUPERVISOR_ENTRY,
        SUPERVISOR_SOCKET,  /* of a nursery */
        SUPERVISOR_ANSWERS, /* of a nursery */
        SUPERVISOR_LIBRARY, /* of a nursery */
        SUPERVISOR_STATUS,  /* where to write the wait status */
        SUPERVISOR_TASKS,
        SUPERVISOR_DEVICES = SUPERVISOR_TASKS + CGROUP_CONTROLLERS,
        SUPERVISOR_TREES = SUPERVISOR_DEVICES + STAGE_DEVICES,
        SUPERVISOR_MOUNTS = SUPERVISOR_TREES + IMAGE_TREES_MAX,
        SUPERVISOR_SLOTS = SUPERVISOR_MOUNTS + SUPERVISOR_MOUNTS_MAX,
};

struct supervisor_answer { /* with the pidfd of what was cloned or is watched */
        int code;    /* 0 or -1 */
        struct err err;
};

enum { SUPERVISOR_FD = 3 }; /* where requests come from */

/* In a clone of the maker: it becomes the program of `program_fd` (src/spawn/supervisor_process.c). Never
 * returns; `start_fd` gives one byte when its ids are mapped, `fd` is where requests come from, `owner` is its
 * argument. */
void supervisor_become(int start_fd, int fd, int program_fd, const char *owner, bool drop_groups)
        __attribute__((noreturn));
