/* The box pool: sealed boxes without a kernel, made while the maker is idle. A run that finds the kernel pool empty
 * then needs a fork and no box. Each box is used once, by a request of exactly its kind. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "box/box.h"
#include "spawn/maker.h"
#include "spawn/nursery.h"

enum { BOX_POOL_MAX = 64 }; /* as SERVE_BOX_POOL_MAX */

struct pooled_box {
        struct box box;
        int lease_fd, workspace_fd;
        uid_t uid;
        gid_t gid;
        pid_t supervisor_pid;       /* the supervisor that is its parent */
        uint64_t fingerprint; /* of the image that it shows */
};

struct box_pool {
        struct pooled_box boxes[BOX_POOL_MAX];
        size_t n_boxes;
        /* The kind of the boxes: that of the last two equal requests. "" in `image`: none yet. */
        struct maker_request kind;
        bool is_wanted; /* two requests in a row were of this kind */
        size_t n_wanted;
};

/* Notes a request: after two of the same kind in a row the pool is filled for that kind, and other boxes are
 * destroyed. */
void box_pool_note(struct box_pool *pool, const struct maker_request *request);

/* True if one more box should be made for this nursery. */
bool box_pool_is_short(const struct box_pool *pool, const struct nursery *nursery);

/* Removes boxes that have died. */
void box_pool_weed(struct box_pool *pool);

void box_pool_put(struct box_pool *pool, const struct pooled_box *box);

/* Takes a box of the request's kind that still runs, below the nursery's supervisor. */
bool box_pool_take(struct box_pool *pool, const struct maker_request *request, const struct nursery *nursery,
                   struct pooled_box *ret_box);
