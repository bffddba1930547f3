/* Rules: the hosts that a box may reach.
 *
 * A rule is "HOST", "HOST:PORT", ".DOMAIN" or ".DOMAIN:PORT": exactly that host, or with a leading dot that domain and
 * everything below it. Without a port it means 80 and 443. A rule with a name does not admit that host's
 * address, nor the reverse. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/share.h"
#include "egress/host.h"

enum { EGRESS_RULES_MAX = 64, EGRESS_NAMED_MAX = 16 };

/* The end of a message about a list of hosts. */
#define EGRESS_RULE_EXAMPLE "name public hosts, for example {\"allow\": [\"example.com:443\", \".example.org\"]}"

struct egress_rule {
        struct egress_host host; /* without the leading dot */
        uint16_t port;           /* 0: 80 and 443 */
        bool with_subdomains;    /* ".DOMAIN" */
        bool trusted;            /* the operator's own rule, which admits private addresses; never from a client */
};

enum egress_mode { EGRESS_NONE, EGRESS_LIST, EGRESS_FULL };

/* An upstream proxy, for hosts without direct access to the internet. It resolves the names, so this proxy checks only
 * the rules, not the addresses. */
struct egress_upstream {
        struct egress_host host;
        uint16_t port;           /* 0: there is none */
        char authorization[400]; /* the value of Proxy-Authorization, or "" */
};

struct egress_rules {
        enum egress_mode mode;
        char key[SHARE_NAME_MAX + 1]; /* name of the API key whose share the box uses; "": the operator's */
        struct egress_upstream upstream; /* the operator's own, for EGRESS_LIST; never from a client */
        size_t n_rules;
        struct egress_rule rules[EGRESS_RULES_MAX]; /* of EGRESS_LIST */
};

/* The operator's settings for all boxes. */
struct egress_operator {
        bool allow_full; /* a box may ask for "full" */
        size_t n_private, n_pins;
        struct egress_rule private
                [EGRESS_NAMED_MAX]; /* hosts that may have a private address; their ports are unused */
        struct {
                struct egress_host name;
                char address[48];
        } pins[EGRESS_NAMED_MAX]; /* names with a fixed address */
};

/* "none", "full", {"allow": ["HOST:PORT", …]}, or NULL for none. ERR_USAGE: malformed. ERR_REFUSED:
 * "full", and the operator does not allow it. */
int egress_rules_parse(const json_t *network, const struct egress_operator *settings, struct egress_rules *ret_rules,
                       struct err *err);

/* Adds one rule; the mode becomes EGRESS_LIST. `trusted`: the operator chose the host, not a client. */
int egress_rules_add(struct egress_rules *rules, const char *text, bool trusted, struct err *err);

/* "http://[USER:PASSWORD@]HOST[:PORT][/]", chosen by the operator, not by a client. */
int egress_rules_set_upstream(struct egress_rules *rules, const char *url, struct err *err);

/* The rule that admits this host and port, or NULL. With EGRESS_FULL, one rule admits all. */
const struct egress_rule *egress_rules_match(const struct egress_rules *rules, const struct egress_host *host,
                                             uint16_t port);

/* One line for the isolation report: "none", "proxy: 2 hosts", "proxy: every public host". Returns the buffer. */
const char *egress_rules_describe(const struct egress_rules *rules, char buffer[static 64]);

/* Parses an operator's option about a host: NAME or .DOMAIN for --egress-allow-private, NAME=ADDRESS for
 * --egress-host. */
int egress_operator_add_private(struct egress_operator *settings, const char *text, struct err *err);
int egress_operator_add_pin(struct egress_operator *settings, const char *text, struct err *err);
bool egress_operator_allows_private(const struct egress_operator *settings, const struct egress_host *host);
const char *egress_operator_find_pin(const struct egress_operator *settings, const struct egress_host *host);
