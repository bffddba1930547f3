#include "spawn/box_pool.h"

#include <poll.h>
#include <string.h>

#include "base/fd.h"

static bool is_same_kind(const struct maker_request *a, const struct maker_request *b) {
        /* Field by field: there may be anything between them. The time limit of a run does not matter for the box. */
        const struct limits *x = &a->limits, *y = &b->limits;
        return strcmp(a->image, b->image) == 0 && a->allow_weaker == b->allow_weaker &&
               x->memory_bytes == y->memory_bytes && x->pids == y->pids && x->cpu_thousandths == y->cpu_thousandths &&
               x->tmp_bytes == y->tmp_bytes && x->disk_bytes == y->disk_bytes && x->disk_files == y->disk_files;
}

static void destroy_box(struct pooled_box *pooled) {
        (void) box_end(&pooled->box, NULL, NULL);
        fd_close(&pooled->workspace_fd);
        fd_close(&pooled->lease_fd);
}

static void box_pool_destroy(struct box_pool *pool) {
        while (pool->n_boxes)
                destroy_box(&pool->boxes[--pool->n_boxes]);
}

void box_pool_note(struct box_pool *pool, const struct maker_request *request) {
        if (*pool->kind.image && is_same_kind(&pool->kind, request)) {
                pool->is_wanted = true;
                return;
        }
        box_pool_destroy(pool);
        pool->kind = *request;
        pool->is_wanted = false;
}

bool box_pool_is_short(const struct box_pool *pool, const struct nursery *nursery) {
        return pool->is_wanted && pool->n_boxes < pool->n_wanted && nursery->state == NURSERY_READY &&
               strcmp(nursery->image, pool->kind.image) == 0;
}

void box_pool_put(struct box_pool *pool, const struct pooled_box *box) {
        pool->boxes[pool->n_boxes++] = *box;
}

static bool is_alive(const struct pooled_box *pooled) {
        struct pollfd watched = { .fd = pooled->box.pidfd, .events = POLLIN };
        return poll(&watched, 1, 0) == 0;
}

void box_pool_weed(struct box_pool *pool) {
        struct pollfd watched[BOX_POOL_MAX];
        for (size_t i = 0; i < pool->n_boxes; i++)
                watched[i] = (struct pollfd) { .fd = pool->boxes[i].box.pidfd, .events = POLLIN };
        if (pool->n_boxes == 0 || poll(watched, (nfds_t) pool->n_boxes, 0) <= 0)
                return;
        for (size_t i = pool->n_boxes; i-- > 0;) {
                if (!watched[i].revents)
                        continue;
                destroy_box(&pool->boxes[i]);
                pool->boxes[i] = pool->boxes[--pool->n_boxes];
        }
}

bool box_pool_take(struct box_pool *pool, const struct maker_request *request, const struct nursery *nursery,
                   struct pooled_box *ret_box) {
        if (!is_same_kind(&pool->kind, request))
                return false;
        while (pool->n_boxes) {
                struct pooled_box pooled = pool->boxes[--pool->n_boxes];
                if (pooled.supervisor_pid == nursery->supervisor->pid && pooled.fingerprint == nursery->fingerprint &&
                    is_alive(&pooled)) {
                        *ret_box = pooled;
                        return true;
                }
                destroy_box(&pooled);
        }
        return false;
}
