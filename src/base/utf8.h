/* Checking and repairing UTF-8. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A fresh copy, NUL-terminated, in which each ill-formed part is replaced by one U+FFFD, as Unicode recommends (and as
 * Python's errors="replace" does). NUL bytes stay. Returns 0 and the caller frees, or -ENOMEM. */
int utf8_repair(const char *bytes, size_t size, char **ret_text, size_t *ret_size);

/* True if all of it is well-formed. NUL bytes are. */
bool utf8_is_valid(const char *bytes, size_t size);

/* The number of bytes of the first character; 0 if it is ill-formed. size > 0. */
size_t utf8_character_length(const char *bytes, size_t size);
