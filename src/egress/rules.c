#include "egress/rules.h"

#include <stdio.h>
#include <string.h>

#include "egress/address.h"

/* ---- one rule ---- */

static const char *rule_hint(const char *text) {
        if (strstr(text, "://"))
                return "; leave the scheme and the path out";
        if (*text == '*')
                return "; for everything below a domain write a leading dot instead of the star";
        return "; write HOST, HOST:PORT, .DOMAIN or .DOMAIN:PORT, for example example.com:443";
}

static int parse_rule(const char *text, struct egress_rule *ret_rule, struct err *err) {
        struct egress_rule rule = { .with_subdomains = *text == '.' };
        const char *rest = text + rule.with_subdomains;
        const char *wrong = egress_authority_parse(rest, strlen(rest), &rule.host, &rule.port);
        if (!wrong && rule.with_subdomains && rule.host.is_address)
                wrong = "an address has no subdomains";
        if (wrong) {
                char shown[80];
                size_t n = 0;
                for (; text[n] && n < sizeof(shown) - 1; n++)
                        shown[n] = text[n] > ' ' && text[n] <= '~' ? text[n] : '?';
                shown[n] = '\0';
                return err_set(err, ERR_USAGE, "network.allow: \"%s\": %s%s", shown, wrong, rule_hint(text));
        }
        *ret_rule = rule;
        return 0;
}

static bool rule_matches_host(const struct egress_rule *rule, const struct egress_host *host) {
        if (rule->host.is_address != host->is_address)
                return false;
        if (strcmp(rule->host.name, host->name) == 0)
                return true;
        size_t size = strlen(host->name), tail = strlen(rule->host.name);
        return rule->with_subdomains && size > tail && host->name[size - tail - 1] == '.' &&
               strcmp(host->name + size - tail, rule->host.name) == 0;
}

static bool rule_matches_port(const struct egress_rule *rule, uint16_t port) {
        return rule->port ? rule->port == port : port == 80 || port == 443;
}

/* ---- the rules of a box ---- */

int egress_rules_add(struct egress_rules *rules, const char *text, bool trusted, struct err *err) {
        struct egress_rule rule;
        if (rules->n_rules == EGRESS_RULES_MAX)
                return err_set(err, ERR_LIMIT,
                               "network.allow: more than %d hosts; name their domain with a leading dot, for example "
                               "\".example.org\"",
                               EGRESS_RULES_MAX);
        if (parse_rule(text, &rule, err) < 0)
                return -1;
        rule.trusted = trusted;
        rules->rules[rules->n_rules++] = rule;
        rules->mode = EGRESS_LIST;
        return 0;
}

#define NETWORK_FORM                                                                                                   \
        "network must be \"none\", \"full\", or {\"allow\": [\"HOST:PORT\", …]}, for example "                       \
        "{\"allow\": [\"example.com:443\", \".example.org\"]}"

/* Refuses a value that is neither a text nor an object with a list, and names an unknown member. */
static int refuse_network_form(const json_t *network, struct err *err) {
        const char *key;
        json_t *value;
        json_object_foreach ((json_t *) (uintptr_t) network, key, value)
                if (strcmp(key, "allow") != 0)
                        return err_set(err, ERR_USAGE, "network: there is no member \"%.60s\"; " NETWORK_FORM, key);
        return err_set(err, ERR_USAGE, NETWORK_FORM);
}

static int parse_network_mode(const char *mode, const struct egress_operator *settings, struct egress_rules *ret_rules,
                              struct err *err) {
        if (strcmp(mode, "none") == 0)
                return 0;
        if (strcmp(mode, "full") != 0)
                return err_set(err, ERR_USAGE, NETWORK_FORM ", not \"%.40s\"", mode);
        if (!settings->allow_full)
                return err_set(err, ERR_REFUSED,
                               "network \"full\" is not allowed here: name the hosts with {\"allow\": [\"HOST:PORT\", "
                               "…]}, or ask the operator to start the service with --allow-full-network");
        ret_rules->mode = EGRESS_FULL;
        return 0;
}

int egress_rules_parse(const json_t *network, const struct egress_operator *settings, struct egress_rules *ret_rules,
                       struct err *err) {
        *ret_rules = (struct egress_rules) { .mode = EGRESS_NONE };
        if (!network || json_is_null(network))
                return 0;
        if (json_is_string(network))
                return parse_network_mode(json_string_value(network), settings, ret_rules, err);
        const json_t *list = json_object_get(network, "allow");
        if (!json_is_array(list) || json_object_size(network) != 1)
                return refuse_network_form(network, err);
        for (size_t i = 0; i < json_array_size(list); i++) {
                const json_t *item = json_array_get(list, i);
                const char *text = json_string_value(item);
                if (!text || strlen(text) != json_string_length(item))
                        return err_set(err, ERR_USAGE,
                                       "network.allow[%zu] must be a text: HOST, HOST:PORT, .DOMAIN or "
                                       ".DOMAIN:PORT; " EGRESS_RULE_EXAMPLE,
                                       i);
                if (egress_rules_add(ret_rules, text, false, err) < 0)
                        return -1;
        }
        return 0;
}

const struct egress_rule *egress_rules_match(const struct egress_rules *rules, const struct egress_host *host,
                                             uint16_t port) {
        static const struct egress_rule everything;
        if (rules->mode == EGRESS_FULL)
                return &everything;
        for (size_t i = 0; rules->mode == EGRESS_LIST && i < rules->n_rules; i++)
                if (rule_matches_host(&rules->rules[i], host) && rule_matches_port(&rules->rules[i], port))
                        return &rules->rules[i];
        return NULL;
}

const char *egress_rules_describe(const struct egress_rules *rules, char buffer[static 64]) {
        if (rules->mode == EGRESS_LIST)
                (void) snprintf(buffer, 64, "proxy: %zu host%s", rules->n_rules, rules->n_rules == 1 ? "" : "s");
        else
                (void) snprintf(buffer, 64, "%s", rules->mode == EGRESS_FULL ? "proxy: every public host" : "none");
        return buffer;
}

/* ---- the settings of the operator ---- */

int egress_operator_add_private(struct egress_operator *settings, const char *text, struct err *err) {
        struct egress_rule rule;
        if (settings->n_private == EGRESS_NAMED_MAX)
                return err_set(err, ERR_LIMIT, "more than %d hosts with private addresses", EGRESS_NAMED_MAX);
        if (parse_rule(text, &rule, err) < 0)
                return -1;
        if (rule.port)
                return err_set(err, ERR_USAGE, "%.80s: give a host without a port; the ports come from the box's rules",
                               text);
        settings->private[settings->n_private++] = rule;
        return 0;
}

int egress_operator_add_pin(struct egress_operator *settings, const char *text, struct err *err) {
        const char *equals = strchr(text, '=');
        if (settings->n_pins == EGRESS_NAMED_MAX)
                return err_set(err, ERR_LIMIT, "more than %d pinned names", EGRESS_NAMED_MAX);
        struct egress_host name;
        union egress_address address;
        const char *wrong = equals ? egress_host_parse(text, (size_t) (equals - text), &name) : "it has no \"=\"";
        if (!wrong && name.is_address)
                wrong = "the name is an address itself";
        if (!wrong &&
            (strlen(equals + 1) >= sizeof(settings->pins[0].address) || !egress_address_parse(equals + 1, &address)))
                wrong = "the text after \"=\" is no address";
        if (wrong)
                return err_set(err, ERR_USAGE, "\"%.80s\": %s; write NAME=ADDRESS, for example index.local=10.0.0.7",
                               text, wrong);
        settings->pins[settings->n_pins].name = name;
        (void) strcpy(settings->pins[settings->n_pins++].address, equals + 1);
        return 0;
}

bool egress_operator_allows_private(const struct egress_operator *settings, const struct egress_host *host) {
        for (size_t i = 0; i < settings->n_private; i++)
                if (rule_matches_host(&settings->private[i], host))
                        return true;
        return false;
}

const char *egress_operator_find_pin(const struct egress_operator *settings, const struct egress_host *host) {
        for (size_t i = 0; i < settings->n_pins; i++)
                if (!host->is_address && strcmp(settings->pins[i].name.name, host->name) == 0)
                        return settings->pins[i].address;
        return NULL;
}
