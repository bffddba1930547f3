#include "egress/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/memory.h"

#define V4(a, b, c, d) ((uint32_t) (a) << 24 | (uint32_t) (b) << 16 | (uint32_t) (c) << 8 | (uint32_t) (d))

/* The first row that matches counts. An address that no row matches is public. */
static const struct {
        uint32_t address;
        unsigned bits;
        enum egress_class class;
} v4_rows[] = {
        { V4(0, 0, 0, 0), 8, EGRESS_FORBIDDEN }, /* "this network": Linux connects 0.0.0.0 to itself */
        { V4(10, 0, 0, 0), 8, EGRESS_PRIVATE },
        { V4(100, 100, 100, 200), 32, EGRESS_FORBIDDEN }, /* a cloud's metadata service */
        { V4(100, 64, 0, 0), 10, EGRESS_PRIVATE },        /* carriers; overlay networks use it */
        { V4(127, 0, 0, 0), 8, EGRESS_PRIVATE },          /* loopback */
        { V4(168, 63, 129, 16), 32, EGRESS_FORBIDDEN },   /* a cloud's metadata service */
        { V4(169, 254, 0, 0), 16, EGRESS_FORBIDDEN },     /* link-local; metadata services of most clouds */
        { V4(172, 16, 0, 0), 12, EGRESS_PRIVATE },
        { V4(192, 0, 0, 0), 24, EGRESS_FORBIDDEN },   /* protocol assignments; a cloud's metadata service */
        { V4(192, 0, 2, 0), 24, EGRESS_PRIVATE },     /* documentation: some networks use it */
        { V4(192, 88, 99, 0), 24, EGRESS_FORBIDDEN }, /* 6to4 relays */
        { V4(192, 168, 0, 0), 16, EGRESS_PRIVATE },
        { V4(198, 18, 0, 0), 15, EGRESS_PRIVATE },    /* benchmarks: some networks use it */
        { V4(198, 51, 100, 0), 24, EGRESS_PRIVATE },  /* documentation: some networks use it */
        { V4(203, 0, 113, 0), 24, EGRESS_PRIVATE },   /* documentation: some networks use it */
        { V4(224, 0, 0, 0), 3, EGRESS_FORBIDDEN },     /* multicast, reserved, broadcast */
};

static enum egress_class class_of_v4(uint32_t address) {
        for (size_t i = 0; i < ELEMENTS(v4_rows); i++)
                if (((address ^ v4_rows[i].address) & ~(uint32_t) 0 << (32 - v4_rows[i].bits)) == 0)
                        return v4_rows[i].class;
        return EGRESS_PUBLIC;
}

static const struct {
        uint8_t prefix[6];
        unsigned bits;
        enum egress_class class;
} v6_rows[] = {
        { { 0xfd, 0x00, 0x0e, 0xc2 }, 32, EGRESS_FORBIDDEN }, /* a cloud's metadata service */
        { { 0xfc }, 7, EGRESS_PRIVATE },                      /* unique local */
        { { 0x20, 0x01, 0x00 }, 23, EGRESS_FORBIDDEN },       /* Teredo, ORCHID and other special purposes */
        { { 0x20, 0x01, 0x0d, 0xb8 }, 32, EGRESS_FORBIDDEN }, /* documentation */
        { { 0x20, 0x02 }, 16, EGRESS_FORBIDDEN },             /* 6to4: contains an IPv4 address */
        { { 0x3f, 0xff, 0x00 }, 20, EGRESS_FORBIDDEN },       /* documentation */
        { { 0x20 }, 3, EGRESS_PUBLIC },
        { { 0 }, 0, EGRESS_FORBIDDEN }, /* the rest: mapped and compatible IPv4, link-local, site-local, multicast, … */
};

static bool address_has_prefix(const uint8_t *bytes, const uint8_t *prefix, unsigned bits) {
        unsigned whole = bits / 8, rest = bits % 8;
        if (memcmp(bytes, prefix, whole) != 0)
                return false;
        return rest == 0 || (bytes[whole] ^ prefix[whole]) >> (8 - rest) == 0;
}

static enum egress_class class_of_v6(const uint8_t bytes[static 16]) {
        static const uint8_t loopback[16] = { [15] = 1 };
        static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };
        if (memcmp(bytes, loopback, 16) == 0)
                return EGRESS_PRIVATE;
        if (memcmp(bytes, nat64, 12) == 0) { /* NAT64: an IPv6-only network reaches IPv4 hosts by it */
                uint32_t inner;
                memcpy(&inner, bytes + 12, 4);
                return class_of_v4(ntohl(inner)) == EGRESS_PUBLIC ? EGRESS_PUBLIC : EGRESS_FORBIDDEN;
        }
        size_t i = 0;
        while (!address_has_prefix(bytes, v6_rows[i].prefix, v6_rows[i].bits))
                i++;
        return v6_rows[i].class;
}

enum egress_class egress_address_class(const union egress_address *address) {
        if (address->any.sa_family == AF_INET)
                return class_of_v4(ntohl(address->v4.sin_addr.s_addr));
        if (address->any.sa_family == AF_INET6)
                return class_of_v6(address->v6.sin6_addr.s6_addr);
        return EGRESS_FORBIDDEN;
}

bool egress_address_is_own(const union egress_address *address) {
        union egress_address to = *address, from = { 0 };
        socklen_t size = sizeof(from);
        _cleanup_fd_ int fd = socket(address->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        egress_address_set_port(&to, 9);
        if (fd < 0 || connect(fd, &to.any, egress_address_size(&to)) < 0 || getsockname(fd, &from.any, &size) < 0)
                /* Without a route there will be no connection. After any other failure, such as a lack of descriptors,
                 * the answer is unknown, so the address is refused. */
                return fd < 0 || (errno != ENETUNREACH && errno != EHOSTUNREACH && errno != EADDRNOTAVAIL);
        if (from.any.sa_family == AF_INET)
                return from.v4.sin_addr.s_addr == to.v4.sin_addr.s_addr;
        return memcmp(&from.v6.sin6_addr, &to.v6.sin6_addr, sizeof(to.v6.sin6_addr)) == 0;
}

bool egress_address_parse(const char *text, union egress_address *ret_address) {
        union egress_address address = { 0 };
        if (inet_pton(AF_INET, text, &address.v4.sin_addr) == 1)
                address.any.sa_family = AF_INET;
        else if (inet_pton(AF_INET6, text, &address.v6.sin6_addr) == 1)
                address.any.sa_family = AF_INET6;
        else
                return false;
        *ret_address = address;
        return true;
}

void egress_address_set_port(union egress_address *address, uint16_t port) {
        if (address->any.sa_family == AF_INET)
                address->v4.sin_port = htons(port);
        else
                address->v6.sin6_port = htons(port);
}

socklen_t egress_address_size(const union egress_address *address) {
        return address->any.sa_family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);
}
