/* The Host header. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A name of letters, digits, dots, dashes and underscores, an IPv4 address, or an IPv6 one in brackets; then perhaps a
 * port. */
bool http_host_is_valid(const char *host);

/* The length of the name in a valid one: without the port, with brackets. */
size_t http_host_name_size(const char *host);

/* True if it is "localhost", a name below it, 127.0.0.0/8 or [::1]. A page of another site whose name resolves to this
 * machine (DNS rebinding) sends that name, so other names can be refused. */
bool http_host_is_loopback(const char *host);
