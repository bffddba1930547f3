/* Orders for kernels. The maker gets a few at a time; the others wait in a queue, where the API keys take turns. */
#pragma once

#include "base/err.h"
#include "spawn/maker.h"

struct registry_session;
struct session_manager;

enum {
        KERNEL_ORDERS_MAX = 1000,  /* boxes that wait to be made */
        KERNEL_ORDERS_AT_ONCE = 4, /* given to the maker before it answers */
};

/* Copies a session's configuration into a request for a kernel. */
void kernel_order_fill(const struct registry_session *row, struct maker_request *ret_request);

/* Assigns an id, and a name for its control groups that no other daemon on this host uses. */
int kernel_order_name(const struct session_manager *manager, struct maker_request *request, struct err *err);

/* Orders a kernel from the maker, now or when it has time. Keys take turns: an order waits behind the earlier orders of
 * its own key, and behind one order of each other key. */
int kernel_order_place(struct session_manager *manager, const struct maker_request *request, const char *owner,
                       struct err *err);

/* Sends waiting orders, as many as the maker takes at a time. */
void kernel_order_send(struct session_manager *manager);

void kernel_order_drop_all(struct session_manager *manager);
