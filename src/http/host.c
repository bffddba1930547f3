#include "http/host.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "http/text.h"

enum { NAME_MAX_SIZE = 253 };

static const char name_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

size_t http_host_name_size(const char *host) {
        if (*host != '[')
                return strcspn(host, ":");
        const char *end = strchr(host, ']');
        return end ? (size_t) (end - host) + 1 : 0;
}

static bool parse_ipv6(const char *host, size_t size, struct in6_addr *ret_address) {
        char text[INET6_ADDRSTRLEN];
        if (size < 4 || size - 2 >= sizeof(text))
                return false;
        memcpy(text, host + 1, size - 2);
        text[size - 2] = '\0';
        return inet_pton(AF_INET6, text, ret_address) == 1;
}

bool http_host_is_valid(const char *host) {
        size_t size = http_host_name_size(host);
        struct in6_addr address;
        if (size == 0 || size > NAME_MAX_SIZE)
                return false;
        if (*host == '[' ? !parse_ipv6(host, size, &address) : strspn(host, name_characters) != size)
                return false;
        host += size;
        if (*host == '\0')
                return true;
        size_t digits = strspn(host + 1, "0123456789");
        return *host == ':' && digits >= 1 && digits <= 5 && host[1 + digits] == '\0' && atol(host + 1) <= 65535;
}

bool http_host_is_loopback(const char *host) {
        char name[NAME_MAX_SIZE + 1];
        size_t size = http_host_name_size(host);
        struct in6_addr ipv6;
        struct in_addr ipv4;
        if (size == 0 || size >= sizeof(name))
                return false;
        if (*host == '[')
                return parse_ipv6(host, size, &ipv6) && IN6_IS_ADDR_LOOPBACK(&ipv6);
        memcpy(name, host, size);
        name[size] = '\0';
        if (inet_pton(AF_INET, name, &ipv4) == 1)
                return ntohl(ipv4.s_addr) >> 24 == 127;
        static const char suffix[] = ".localhost";
        size_t tail = sizeof(suffix) - 1;
        return http_same(name, "localhost") || (size > tail && http_same(name + size - tail, suffix));
}
