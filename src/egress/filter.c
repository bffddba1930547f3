#include "egress/filter.h"

#include <stdio.h>
#include <string.h>

static bool address_passes(const union egress_address *address, bool may_be_private) {
        switch (egress_address_class(address)) {
        case EGRESS_PUBLIC:
                return may_be_private || !egress_address_is_own(address);
        case EGRESS_PRIVATE:
                return may_be_private;
        default:
                return false;
        }
}

size_t egress_filter_addresses(const struct egress_operator *settings, const struct egress_rule *rule,
                               const struct egress_host *host, union egress_address *addresses, size_t count,
                               struct refusal *refusal) {
        bool may_be_private = rule->trusted || egress_operator_allows_private(settings, host), has_private = false;
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
                if (address_passes(&addresses[i], may_be_private))
                        addresses[kept++] = addresses[i];
                else
                        has_private |= egress_address_class(&addresses[i]) != EGRESS_FORBIDDEN;
        }
        if (kept == 0 && has_private)
                refusal_set(
                        refusal, 403,
                        "Boxes reach public addresses only. The operator of this Glovebox can allow private ones for "
                        "this host with --egress-allow-private.",
                        "%.150s leads to a private address", host->name);
        else if (kept == 0)
                refusal_set(refusal, 403, "Link-local, metadata, multicast and reserved addresses are closed to boxes.",
                            "%.150s leads to an address that no box may reach", host->name);
        return kept;
}

void egress_refuse_host(const struct egress_rules *rules, const struct egress_host *host, uint16_t port,
                        struct refusal *refusal) {
        char advice[1500] = "", shown[EGRESS_SHOWN_ROOM];
        size_t n = 0;
        for (size_t i = 0; i < rules->n_rules && n < sizeof(advice) - 2 * EGRESS_SHOWN_ROOM; i++) {
                const struct egress_rule *rule = &rules->rules[i];
                (void) egress_host_show(&rule->host, rule->port, shown);
                if (!rule->port)
                        *strrchr(shown, ':') = '\0';
                n += (size_t) snprintf(advice + n, sizeof(advice) - n, "%s%s%s", i ? ", " : "", rule->below ? "." : "",
                                       shown);
        }
        refusal_set(refusal, 403, "", "%.180s is not on the allow-list of this box",
                    egress_host_show(host, port, shown));
        (void) snprintf(refusal->advice, sizeof(refusal->advice),
                        "It may reach: %s. A host without a port stands for ports 80 and 443. Make the box with this "
                        "host under network, allow (--allow-host) if it needs it.",
                        advice);
}
