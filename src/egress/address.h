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
        EGRESS_PRIVATE,   /* this machine or its own networks: only for hosts that the operator named */
        EGRESS_FORBIDDEN, /* never: link-local, metadata services, multicast, reserved, tunnels to another address */
};

/* By the number alone. */
enum egress_class egress_address_class(const union egress_address *address);

/* True if the address is one of this machine. A program that listens on all addresses of the host also answers on the
 * public one, which a firewall in front of the host does not protect from here. Reads the routing table; sends
 * nothing. */
bool egress_address_is_own(const union egress_address *address);

/* From the text of inet_ntop. */
bool egress_address_parse(const char *text, union egress_address *ret_address);
void egress_address_set_port(union egress_address *address, uint16_t port);
socklen_t egress_address_size(const union egress_address *address);
