/* The accepted arguments of `pip install`: requirements of the Python packaging grammar (PEP 508) without its direct
 * references. No option, path, file name or URL passes, so that a client's text can be an argument of pip. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { REQUIREMENT_MAX = 500, REQUIREMENT_NAME_MAX = 100, REQUIREMENTS_MAX = 100 };

/* "humanize", "attrs>=23", "requests[socks]~=2.31; python_version < '3.13'". ERR_USAGE says what is wrong with it. */
int requirement_check(const char *text, struct err *err);

/* True if this is a distribution's name: letters, digits, and . _ - between them. */
bool requirement_is_name(const char *text, size_t size);
