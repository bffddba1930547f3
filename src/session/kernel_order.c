#include "session/kernel_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/kernel.h"
#include "session/manager.h"
#include "session/session_config.h"
#include "session/session_engine.h"

void kernel_order_fill(const struct registry_session *row, struct maker_request *ret_request) {
        struct maker_request request = { .limits = row->limits,
                                         .allow_weaker = row->allow_weaker,
                                         .fresh = strcmp(row->mode, "fresh") == 0 || session_config_has_users(row),
                                         .of_key = *row->owner != '\0' };
        struct session_engine engine = session_engine_of(row);
        memcpy(request.engine, engine.name, sizeof(request.engine));
        memcpy(request.runtime, engine.runtime, sizeof(request.runtime));
        (void) snprintf(request.image, sizeof(request.image), "%s", row->image);
        (void) snprintf(request.options, sizeof(request.options), "%s", row->options);
        *ret_request = request;
}

int kernel_order_name(const struct session_manager *manager, struct maker_request *request, struct err *err) {
        if (registry_make_id(request->kernel_id, err) < 0)
                return -1;
        (void) snprintf(request->group, sizeof(request->group), "%s%s", manager->group_prefix, request->kernel_id);
        return 0;
}

struct kernel_order {
        struct kernel_order *next;
        uint64_t turn;
        char owner[sizeof(((struct registry_session *) NULL)->owner)];
        struct maker_request request;
};

static void kernel_order_free(struct session_manager *manager, struct kernel_order *order) {
        share_give(&manager->shares, SHARE_ORDERS, &(const struct share_claim) { .key = order->owner, .amount = 1 });
        manager->n_orders--;
        free(order);
}

/* A few requests in the maker's socket keep it busy; the others wait here. */
void kernel_order_send(struct session_manager *manager) {
        struct err err;
        while (manager->orders && manager->n_ordered < KERNEL_ORDERS_AT_ONCE) {
                struct kernel_order *order = manager->orders;
                const struct kernel *kernel = manager_find_kernel(manager, order->request.kernel_id);
                if (kernel) { /* still wanted */
                        const int box_pidfd = order->request.attach ? kernel->fds[MAKER_PIDFD] : -1;
                        if (maker_send(&manager->maker, &order->request, box_pidfd, &err) < 0)
                                return; /* its next answer, or its end, calls this again */
                        manager->n_ordered += engine_is_native(order->request.engine);
                        manager->turn = order->turn;
                }
                manager->orders = order->next;
                kernel_order_free(manager, order);
        }
}

/* An order gets the turn after the last order of its key, or the next turn if its key has none waiting. */
static void queue_order(struct session_manager *manager, struct kernel_order *order) {
        order->turn = manager->turn + 1;
        for (const struct kernel_order *at = manager->orders; at; at = at->next)
                if (strcmp(at->owner, order->owner) == 0)
                        order->turn = at->turn + 1;
        struct kernel_order **place = &manager->orders;
        while (*place && (*place)->turn <= order->turn)
                place = &(*place)->next;
        order->next = *place;
        *place = order;
        manager->n_orders++;
}

int kernel_order_place(struct session_manager *manager, const struct maker_request *request, const char *owner,
                       struct err *err) {
        const struct share_claim claim = { .key = owner, .amount = 1 };
        if (share_take(&manager->shares, SHARE_ORDERS, &claim, err) < 0)
                return -1;
        struct kernel_order *order = malloc(sizeof(*order));
        if (!order) {
                share_give(&manager->shares, SHARE_ORDERS, &claim);
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        *order = (struct kernel_order) { .request = *request };
        (void) snprintf(order->owner, sizeof(order->owner), "%s", owner);
        queue_order(manager, order);
        kernel_order_send(manager);
        return 0;
}

void kernel_order_drop_all(struct session_manager *manager) {
        while (manager->orders) {
                struct kernel_order *order = manager->orders;
                manager->orders = order->next;
                kernel_order_free(manager, order);
        }
}
