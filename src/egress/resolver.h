/* Names to addresses, by threads: getaddrinfo waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/loop.h"
#include "egress/address.h"

enum { RESOLVER_THREADS = 16, RESOLVER_ADDRESSES_MAX = 8, RESOLVER_QUEUE_MAX = 1024 };

struct resolver;
struct lookup;

struct lookup_result {
        int code; /* as of getaddrinfo: 0, or EAI_… */
        size_t count;
        union egress_address addresses[RESOLVER_ADDRESSES_MAX];
};

int resolver_make(struct loop *loop, struct resolver **ret_resolver, struct err *err);

/* Calls back from the loop, once, unless it is abandoned before. NULL: too many wait already. */
struct lookup *resolver_ask(struct resolver *resolver, const char *name,
                            void (*done)(void *context, const struct lookup_result *result), void *context);

/* Nobody wants the answer any more. */
void resolver_abandon(struct lookup **lookup);
