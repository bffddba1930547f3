/* Resolves names in threads, because getaddrinfo blocks. A key has at most half of the threads and of the queue, so
 * slow names of one key do not delay those of another. A box has at most a quarter of the threads. A thread cannot be
 * stopped when its lookup is cancelled; it counts for its box until it returns. */
#pragma once

#include <stddef.h>

#include "base/loop.h"
#include "egress/address.h"

enum { RESOLVER_THREADS = 32, RESOLVER_ADDRESSES_MAX = 8, RESOLVER_QUEUE_MAX = 1024 };

struct resolver;
struct lookup;

struct lookup_result {
        int code; /* of getaddrinfo: 0, or EAI_… */
        size_t count;
        union egress_address addresses[RESOLVER_ADDRESSES_MAX];
};

int resolver_make(struct loop *loop, struct resolver **ret_resolver, struct err *err);

/* Calls `done` once from the loop, unless the lookup is cancelled before. `box` only identifies the box. Returns NULL
 * if too many lookups are waiting, of all keys or of this one. */
struct lookup *resolver_look_up(struct resolver *resolver, const char *key, const void *box, const char *name,
                                void (*done)(void *context, const struct lookup_result *result), void *context);

/* Cancels a lookup; *lookup may be NULL. A lookup that has not begun is removed at once. */
void resolver_cancel(struct resolver *resolver, struct lookup **lookup);
