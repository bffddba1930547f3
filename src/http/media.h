/* Media types: Content-Type and Accept. */
#pragma once

#include <stdbool.h>

/* Is this Content-Type (NULL: none) that type ("application/json")? Parameters are allowed, but a charset other than
 * UTF-8 makes it another. */
bool http_type_is(const char *content_type, const char *type);

/* The preference of an Accept header (NULL: none, so anything) for the type, in thousandths; 0: not at all. The most
 * specific range decides. A malformed range is passed over. */
int http_accept_quality(const char *accept, const char *type);
