/* Values as people type them: "512m", "1.5", "60s". A value that is malformed, negative, zero where zero has no
 * meaning, or out of bounds is refused with a message; nothing is guessed. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* "512m", "1g", "1048576", "1.5g"; k, m, g, t are powers of 1024 and may be followed by "b" or "ib". */
int units_parse_bytes(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret_bytes,
                      struct err *err);

/* "60", "1.5", "90s", "2m", "1h", "250ms". */
int units_parse_duration_ms(const char *what, const char *text, uint64_t min_ms, uint64_t max_ms, uint64_t *ret_ms,
                            struct err *err);

int units_parse_count(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret_count,
                      struct err *err);

/* "1", "0.5": in thousandths. */
int units_parse_thousandths(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *ret_thousandths,
                            struct err *err);

/* "512 MiB", "1.5 GiB", "12 bytes". */
const char *units_format_bytes(uint64_t bytes, char buffer[static 32]);
