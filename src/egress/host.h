/* The host of a connection: a DNS name or the text of an address, in one canonical form.
 *
 * Spellings that resolvers interpret in different ways are refused: other spellings of IPv4 addresses (0x7f.1, 127.1,
 * 2130706433), trailing dots, user information, zones. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EGRESS_HOST_MAX = 253, EGRESS_HOST_ROOM = EGRESS_HOST_MAX + 3 };

struct egress_host {
        char name[EGRESS_HOST_ROOM]; /* lower case; an IPv6 address without brackets, as inet_ntop writes it */
        bool is_address;
};

/* Parses a name, an IPv4 address, or an IPv6 address in brackets. Returns NULL, or a short description of the error. */
const char *egress_host_parse(const char *text, size_t size, struct egress_host *ret_host);

/* Parses the same with an optional ":port". Without one, *ret_port is unchanged. */
const char *egress_authority_parse(const char *text, size_t size, struct egress_host *ret_host, uint16_t *ret_port);

/* Writes "host:port", with the brackets of an IPv6 address. Returns the buffer. */
enum { EGRESS_SHOWN_ROOM = EGRESS_HOST_ROOM + 10 };
const char *egress_host_show(const struct egress_host *host, uint16_t port, char buffer[static EGRESS_SHOWN_ROOM]);
