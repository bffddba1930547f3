/* The characters of HTTP and of URLs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool http_is_token_character(char character);
bool http_is_token(const char *text, size_t size); /* not empty */

/* True if the text may be the value of a header: it has no control character but the tab. */
bool http_is_value(const char *text, size_t size);

/* The same name, whatever the case of its ASCII letters. */
bool http_same(const char *a, const char *b);
bool http_same_sized(const char *a, size_t size, const char *b);

int http_hex_value(char digit); /* -1: not one */

/* Percent-decodes into ret_text, which has room for size + 1 bytes, and puts a NUL after it. -EINVAL: a broken escape,
 * a NUL, or not UTF-8. */
int http_decode(const char *text, size_t size, bool plus_is_space, char *ret_text, size_t *ret_size);

/* Percent-encodes all but letters, digits, "-._~" and, if wanted, slashes: fit for a query, and for the extended values
 * of RFC 8187. A fresh text that the caller frees, or NULL: out of memory. */
char *http_encode(const char *text, bool keeps_slashes);

const char *http_skip_spaces(const char *text); /* spaces and tabs */

/* Parses a quoted string or a token at *text, unescaped into ret_value (room bytes, with a NUL), and moves *text behind
 * it. -EINVAL: neither, or too long. */
int http_take_word(const char **text, char *ret_value, size_t room);
