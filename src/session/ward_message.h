/* What the maker asks of a ward. Both are made in one build, and one carries the other: plain structs do. */
#pragma once

#include <stddef.h>

#include "session/ward.h"

enum ward_request_kind { WARD_CLONE_BOX, WARD_START_NURSERY, WARD_WATCH };

struct ward_request {
        enum ward_request_kind kind;
        struct limits limits;
        uid_t uid; /* of the box, as N sees it */
        gid_t gid;
        bool has_memory_cgroup, has_pids_cgroup;
        bool makes_mould, from_mould; /* of a box: box/mould.h */
        bool light; /* which of the two nurseries */
        pid_t pid;  /* to watch, as N sees it */
        char preload[WARD_PRELOAD_MAX]; /* see box/nursery_stage.h */
        size_t n_mounts;
        bool has_image; /* from here on only what there is is sent */
        struct image image; /* its descriptors are among the slots */
        struct {
                bool is_directory, writable;
                char destination[WARD_DESTINATION_MAX];
        } mounts[WARD_MOUNTS_MAX];
};

/* How much of it is sent. */
static inline size_t ward_request_size(const struct ward_request *request) {
        if (!request->has_image)
                return offsetof(struct ward_request, image);
        return offsetof(struct ward_request, mounts) + request->n_mounts * sizeof(request->mounts[0]);
}

enum ward_slot {
        WARD_SYNC,
        WARD_CONTROL,
        WARD_AGENT,
        WARD_LISTENER, /* of a box with a network */
        WARD_WORKSPACE,
        WARD_ENTRY,
        WARD_SOCKET,  /* of a nursery */
        WARD_ANSWERS, /* of a nursery */
        WARD_LIBRARY, /* of a nursery */
        WARD_STATUS,  /* where to tell */
        WARD_TASKS,
        WARD_DEVICES = WARD_TASKS + CGROUP_CONTROLLERS,
        WARD_TREES = WARD_DEVICES + STAGE_DEVICES,
        WARD_MOUNTS = WARD_TREES + IMAGE_TREES_MAX,
        WARD_SLOTS = WARD_MOUNTS + WARD_MOUNTS_MAX,
};

struct ward_answer { /* with the pidfd of what was cloned or is watched */
        int code;    /* 0 or -1 */
        struct err err;
};

enum { WARD_FD = 3 }; /* where requests come from */

/* For the clone of whoever starts a ward: it becomes the program of `program_fd` (src/session/ward_process.c). Never
 * returns; `start_fd` gives one byte when its ids are mapped, `fd` is where requests come from, `owner` is its
 * argument. */
void ward_become(int start_fd, int fd, int program_fd, const char *owner, bool drop_groups)
        __attribute__((noreturn));
