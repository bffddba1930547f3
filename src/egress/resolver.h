/* Resolves names in threads, because getaddrinfo blocks. A key has at most half of the threads and of the queue, so
 * slow names of one key do not delay those of another. A box has at most a quarter of the threads. A thread cannot be
 * stopped when its lookup is abandoned; it counts for its box until it returns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/loop.h"
#include "egress/address.h"

enum { RESOLVER_THREADS = 32, RESOLVER_ADDRESSES_MAX = 8, RESOLVER_QUEUE_MAX = 1024 };

struct resolver;
struct lookup;

struct lookup_result {
        int code; /* as of getaddrinfo: 0, or EAI_… */
        size_t count;
        union egress_address addresses[RESOLVER_ADDRESSES_MAX];
};

int resolver_make(struct loop *loop, struct resolver **ret_resolver, struct err *err);

/* `box` only identifies the box. Calls back from the loop, once, unless the lookup is abandoned before. NULL: too many
 * lookups, of all keys or of this one, are waiting. */
struct lookup *resolver_ask(struct resolver *resolver, const char *key, const void *box, const char *name,
                            void (*done)(void *context, const struct lookup_result *result), void *context);

/* The answer is not needed any more. A lookup that has not begun is dropped at once. */
void resolver_abandon(struct resolver *resolver, struct lookup **lookup);
