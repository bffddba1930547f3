/* Orders for kernels. The maker makes a few at a time; the rest waits here, key by key in turn. */
#pragma once

#include "base/err.h"
#include "spawn/maker.h"

struct registry_session;
struct session_manager;

enum {
        KERNEL_ORDERS_MAX = 1000,  /* boxes that wait to be made */
        KERNEL_ORDERS_AT_ONCE = 4, /* given to the maker before it answers */
};

/* What a session's configuration says about its kernels. */
void kernel_order_fill(const struct registry_session *row, struct maker_request *ret_request);

/* Gives it an id, and its control groups a name that no other daemon on this host uses. */
int kernel_order_name(const struct session_manager *manager, struct maker_request *request, struct err *err);

/* Asks the maker for a kernel, now or as soon as it has time. Keys take turns: an order waits behind the earlier orders
 * of its own key, and behind one order of each other key. */
int kernel_order_place(struct session_manager *manager, const struct maker_request *request, const char *owner,
                       struct err *err);

/* Gives the maker as much as it takes at a time. */
void kernel_order_send(struct session_manager *manager);

void kernel_order_drop_all(struct session_manager *manager);
