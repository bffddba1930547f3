/* Decides about addresses after a name was resolved. The proxy connects to exactly the addresses that pass: the name is
 * never resolved a second time, so a changed answer of DNS has no effect. */
#pragma once

#include <stddef.h>

#include "egress/address.h"
#include "egress/request.h"
#include "egress/rules.h"

/* Keeps those of `addresses` that a box with this rule may be connected to, in their order, and returns how many.
 * Refuses with a message if none is left. The message does not reveal the private address. */
size_t egress_filter_addresses(const struct egress_operator *settings, const struct egress_rule *rule,
                               const struct egress_host *host, union egress_address *addresses, size_t count,
                               struct refusal *refusal);

/* Refuses rules that no connection could use: addresses, and localhost, that are closed to this box. Where a name leads
 * is known only at the connection. */
int egress_filter_check_rules(const struct egress_operator *settings, const struct egress_rules *rules,
                              struct err *err);

/* The refusal of a host that no rule admits. */
void egress_refuse_host(const struct egress_rules *rules, const struct egress_host *host, uint16_t port,
                        struct refusal *refusal);
