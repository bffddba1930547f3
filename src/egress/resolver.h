/* Names to addresses, by threads: getaddrinfo waits. A key has at most half of the threads, and of the places in the
 * queue: names that take long, however many, hold up no other key's. A box has at most a quarter of the threads. A
 * thread cannot be called back from a look-up that is given up; it counts for its box until it is free again. */
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

/* `box` only tells boxes apart. Calls back from the loop, once, unless it is abandoned before. NULL: too many of all,
 * or of this key, wait already. */
struct lookup *resolver_ask(struct resolver *resolver, const char *key, const void *box, const char *name,
                            void (*done)(void *context, const struct lookup_result *result), void *context);

/* The answer is not needed any more. A lookup that has not begun is dropped at once. */
void resolver_abandon(struct resolver *resolver, struct lookup **lookup);
