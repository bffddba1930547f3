/* Filters addresses after a name was resolved. The proxy connects to exactly the addresses that pass. It never resolves
 * the name a second time, so a changed answer of DNS has no effect. */
#pragma once

#include <stddef.h>

#include "egress/address.h"
#include "egress/request.h"
#include "egress/rules.h"

/* Keeps those of `addresses` to which a box with this rule may connect, in their order, and returns their number. If
 * none is left, fills `refusal`. Its message does not reveal the private address. */
size_t egress_filter_addresses(const struct egress_operator *settings, const struct egress_rule *rule,
                               const struct egress_host *host, union egress_address *addresses, size_t count,
                               struct refusal *refusal);

/* Refuses rules that no connection could use: addresses, and localhost, that are closed to this box. Other names are
 * not checked here, because they are resolved at the connection. */
int egress_filter_check_rules(const struct egress_operator *settings, const struct egress_rules *rules,
                              struct err *err);

/* Fills the refusal of a host that no rule admits. */
void egress_refuse_host(const struct egress_rules *rules, const struct egress_host *host, uint16_t port,
                        struct refusal *refusal);
