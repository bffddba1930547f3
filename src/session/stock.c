#include "session/stock.h"

#include <poll.h>
#include <string.h>

#include "base/fd.h"

static bool is_same_kind(const struct maker_request *a, const struct maker_request *b) {
        /* Field by field: there may be anything between them. How long a run may take is not the box's business. */
        const struct limits *x = &a->limits, *y = &b->limits;
        return strcmp(a->image, b->image) == 0 && a->allow_weaker == b->allow_weaker &&
               x->memory_bytes == y->memory_bytes && x->pids == y->pids && x->cpu_thousandths == y->cpu_thousandths &&
               x->tmp_bytes == y->tmp_bytes && x->disk_bytes == y->disk_bytes && x->disk_files == y->disk_files;
}

static void destroy_box(struct stock_box *stocked) {
        (void) box_end(&stocked->box, NULL, NULL);
        fd_close(&stocked->workspace_fd);
        fd_close(&stocked->lease_fd);
}

void stock_destroy(struct stock *stock) {
        while (stock->n_boxes)
                destroy_box(&stock->boxes[--stock->n_boxes]);
}

void stock_note(struct stock *stock, const struct maker_request *request) {
        if (*stock->kind.image && is_same_kind(&stock->kind, request)) {
                stock->is_wanted = true;
                return;
        }
        stock_destroy(stock);
        stock->kind = *request;
        stock->is_wanted = false;
}

bool stock_is_short(const struct stock *stock, const struct nursery *nursery) {
        return stock->is_wanted && stock->n_boxes < stock->n_wanted && nursery->state == NURSERY_READY &&
               strcmp(nursery->image, stock->kind.image) == 0;
}

void stock_put(struct stock *stock, const struct stock_box *box) {
        stock->boxes[stock->n_boxes++] = *box;
}

static bool is_alive(const struct stock_box *stocked) {
        struct pollfd watched = { .fd = stocked->box.pidfd, .events = POLLIN };
        return poll(&watched, 1, 0) == 0;
}

void stock_weed(struct stock *stock) {
        struct pollfd watched[STOCK_MAX];
        for (size_t i = 0; i < stock->n_boxes; i++)
                watched[i] = (struct pollfd) { .fd = stock->boxes[i].box.pidfd, .events = POLLIN };
        if (stock->n_boxes == 0 || poll(watched, (nfds_t) stock->n_boxes, 0) <= 0)
                return;
        for (size_t i = stock->n_boxes; i-- > 0;) {
                if (!watched[i].revents)
                        continue;
                destroy_box(&stock->boxes[i]);
                stock->boxes[i] = stock->boxes[--stock->n_boxes];
        }
}

bool stock_take(struct stock *stock, const struct maker_request *request, const struct nursery *nursery,
                struct stock_box *ret_box) {
        if (!is_same_kind(&stock->kind, request))
                return false;
        while (stock->n_boxes) {
                struct stock_box stocked = stock->boxes[--stock->n_boxes];
                if (stocked.ward_pid == nursery->ward->pid && stocked.fingerprint == nursery->fingerprint &&
                    is_alive(&stocked)) {
                        *ret_box = stocked;
                        return true;
                }
                destroy_box(&stocked);
        }
        return false;
}
