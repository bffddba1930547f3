/* Text out of bytes that may be anything. */
#pragma once

#include <stddef.h>

/* A fresh copy, NUL-terminated, in which each ill-formed part became one U+FFFD, as Unicode recommends (and as Python's
 * errors="replace" does). NUL bytes stay. Returns 0 and the caller frees, or -ENOMEM. */
int utf8_repair(const char *bytes, size_t size, char **ret_text, size_t *ret_size);
