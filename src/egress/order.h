/* A message to the proxy: the rules of one box, of variable length, and two descriptors. Both ends run the same
 * program, so the message is the struct itself. */
#pragma once

#include <stddef.h>

#include "egress/rules.h"

enum order_fd { ORDER_LISTENER, ORDER_PIDFD, ORDER_FDS };

static inline size_t order_size(const struct egress_rules *rules) {
        return offsetof(struct egress_rules, rules) + rules->n_rules * sizeof(rules->rules[0]);
}
