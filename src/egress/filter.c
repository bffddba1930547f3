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

/* Finds the address of a rule's host without a resolver. False for names other than localhost. */
static bool address_of_rule(const struct egress_rule *rule, union egress_address *ret_address) {
        const char *name = rule->host.name;
        size_t size = strlen(name);
        if (rule->host.is_address)
                return egress_address_parse(name, ret_address);
        return (strcmp(name, "localhost") == 0 || (size > 10 && strcmp(name + size - 10, ".localhost") == 0)) &&
               egress_address_parse("127.0.0.1", ret_address);
}

int egress_filter_check_rules(const struct egress_operator *settings, const struct egress_rules *rules,
                              struct err *err) {
        for (size_t i = 0; i < rules->n_rules; i++) {
                const struct egress_rule *rule = &rules->rules[i];
                union egress_address address;
                if (egress_operator_find_pin(settings, &rule->host) || !address_of_rule(rule, &address) ||
                    address_passes(&address, egress_operator_allows_private(settings, &rule->host)))
                        continue;
                if (egress_address_class(&address) == EGRESS_FORBIDDEN)
                        return err_set(err, ERR_REFUSED,
                                       "network.allow: no box may reach %.150s: link-local, metadata, multicast and "
                                       "reserved addresses are closed; " EGRESS_RULE_EXAMPLE,
                                       rule->host.name);
                return err_set(err, ERR_REFUSED,
                               "network.allow: no box may reach %.150s, a private address or this host's own, unless "
                               "the operator allows it with --egress-allow-private; " EGRESS_RULE_EXAMPLE,
                               rule->host.name);
        }
        return 0;
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
                n += (size_t) snprintf(advice + n, sizeof(advice) - n, "%s%s%s", i ? ", " : "",
                                       rule->with_subdomains ? "." : "", shown);
        }
        refusal_set(refusal, 403, "", "%.180s is not on the allow-list of this box",
                    egress_host_show(host, port, shown));
        (void) snprintf(refusal->advice, sizeof(refusal->advice),
                        "It may reach: %s. A host without a port stands for ports 80 and 443. Make the box with this "
                        "host under network, allow (--allow-host) if it needs it.",
                        advice);
}
