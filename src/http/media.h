/* Media types: what a body is, and what a client would like. */
#pragma once

#include <stdbool.h>

/* Is this Content-Type (NULL: none) that type ("application/json")? Parameters are allowed, but a charset other than
 * UTF-8 makes it another. */
bool http_type_is(const char *content_type, const char *type);

/* How much an Accept header (NULL: none, so anything) likes the type, in thousandths; 0: not at all. The most specific
 * range decides. A malformed range is passed over. */
int http_accept_quality(const char *accept, const char *type);
