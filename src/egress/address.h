/* Which addresses a box may be connected to. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>

union egress_address {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
};

enum egress_class {
        EGRESS_PUBLIC,    /* the internet */
        EGRESS_PRIVATE,   /* this machine or its local networks: only for hosts that the operator named */
        EGRESS_FORBIDDEN, /* never: link-local, metadata services, multicast, reserved, tunnels to another address */
};

/* Judges the address alone; no request is sent. */
enum egress_class egress_address_class(const union egress_address *address);

/* True if the address belongs to this machine. A program that listens on all addresses of the host also answers on the
 * public one, and a firewall in front of the host does not filter connections from the host itself. Reads the routing
 * table and sends nothing. */
bool egress_address_is_own(const union egress_address *address);

/* Parses the text of an IPv4 or IPv6 address, as inet_ntop writes it. */
bool egress_address_parse(const char *text, union egress_address *ret_address);
void egress_address_set_port(union egress_address *address, uint16_t port);
socklen_t egress_address_size(const union egress_address *address);
