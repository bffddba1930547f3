/* Base64 (RFC 4648), with padding and without line ends. */
#pragma once

#include <stddef.h>

#include "base/json_writer.h"

/* Adds the text, without quotes. */
void base64_put(struct json_writer *text, const void *bytes, size_t size);

/* Decodes into ret_bytes, which has room for size / 4 * 3 + 3. -EINVAL: it is none. */
int base64_decode(const char *text, size_t size, void *ret_bytes, size_t *ret_size);
