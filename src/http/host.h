/* The Host header, and whom it names. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A name of letters, digits, dots, dashes and underscores, an IPv4 address, or an IPv6 one in brackets; then perhaps a
 * port. */
bool http_host_is_valid(const char *host);

/* How much of a valid one is the name: without port, brackets included. */
size_t http_host_name_size(const char *host);

/* Is it "localhost", a name below it, 127.0.0.0/8 or [::1]? A page of some other site that had its own name resolved to
 * this machine sends that name: what is not local, and not known otherwise, can be refused. */
bool http_host_is_loopback(const char *host);
