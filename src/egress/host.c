#include "egress/host.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_MAX = 63 };

static bool is_host_digit(char c) {
        return c >= '0' && c <= '9';
}

static bool is_host_character(char c) {
        return (c >= 'a' && c <= 'z') || is_host_digit(c);
}

static bool is_host_label(const char *label, size_t size) {
        if (size == 0 || size > LABEL_MAX || label[0] == '-' || label[size - 1] == '-')
                return false;
        for (size_t i = 0; i < size; i++)
                if (!is_host_character(label[i]) && label[i] != '-')
                        return false;
        return true;
}

/* True for a label that inet_aton reads as a part of an address: 12, 014, 0xc. No top-level domain has that form. */
static bool is_address_number(const char *label) {
        if (strspn(label, "0123456789") == strlen(label))
                return true;
        return label[0] == '0' && label[1] == 'x' && strspn(label + 2, "0123456789abcdef") == strlen(label + 2);
}

static const char *check_host_name(const char *name) {
        const char *label = name;
        for (;;) {
                size_t size = strcspn(label, ".");
                if (!is_host_label(label, size))
                        return "not a host name: letters, digits and inner hyphens, between single dots";
                if (label[size] == '\0')
                        break;
                label += size + 1;
        }
        return is_address_number(label) ? "an address in an unusual spelling; write it as four decimal numbers" : NULL;
}

/* True for four decimal numbers without leading zeros. Other spellings are refused, because resolvers read them in
 * different ways. */
static bool is_canonical_ipv4(const char *text) {
        struct in_addr address;
        char canonical[INET_ADDRSTRLEN];
        return inet_pton(AF_INET, text, &address) == 1 && inet_ntop(AF_INET, &address, canonical, sizeof(canonical)) &&
               strcmp(text, canonical) == 0;
}

const char *egress_host_parse(const char *text, size_t size, struct egress_host *ret_host) {
        struct egress_host host = { 0 };
        if (size == 0)
                return "no host";
        if (size > EGRESS_HOST_MAX)
                return "longer than a host name can be";
        for (size_t i = 0; i < size; i++)
                host.name[i] = (char) (text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
        if (strlen(host.name) != size)
                return "not a host name";
        if (host.name[0] == '[') {
                struct in6_addr address;
                if (host.name[size - 1] != ']')
                        return "a bracket that is not closed";
                host.name[size - 1] = '\0';
                if (inet_pton(AF_INET6, host.name + 1, &address) != 1)
                        return "not an IPv6 address";
                (void) inet_ntop(AF_INET6, &address, host.name, sizeof(host.name));
                host.is_address = true;
        } else if (is_canonical_ipv4(host.name))
                host.is_address = true;
        else {
                const char *wrong = check_host_name(host.name);
                if (wrong)
                        return wrong;
        }
        *ret_host = host;
        return NULL;
}

const char *egress_authority_parse(const char *text, size_t size, struct egress_host *ret_host, uint16_t *ret_port) {
        const char *bracket = memrchr(text, ']', size), *from = bracket ? bracket : text;
        const char *colon = memchr(from, ':', size - (size_t) (from - text));
        uint16_t port = 0;
        size_t host_size = colon ? (size_t) (colon - text) : size;
        if (colon) {
                char digits[6] = "";
                size_t n = size - host_size - 1;
                if (n == 0 || n > 5)
                        return "not a port";
                memcpy(digits, colon + 1, n);
                if (strspn(digits, "0123456789") != n || digits[0] == '0' || atol(digits) > 65535)
                        return "not a port: 1 to 65535";
                port = (uint16_t) atol(digits);
        }
        const char *wrong = egress_host_parse(text, host_size, ret_host);
        if (!wrong && colon)
                *ret_port = port;
        return wrong;
}

const char *egress_host_show(const struct egress_host *host, uint16_t port, char buffer[static EGRESS_SHOWN_ROOM]) {
        bool brackets = host->is_address && strchr(host->name, ':');
        (void) snprintf(buffer, EGRESS_SHOWN_ROOM, "%s%s%s:%u", brackets ? "[" : "", host->name, brackets ? "]" : "",
                        port);
        return buffer;
}
