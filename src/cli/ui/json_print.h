/* What the daemon answered, printed for programs. */
#pragma once

#include <jansson.h>

#include "base/err.h"

/* One line of JSON on standard output, without the "ok" that belongs to the wire. */
int json_print_answer(const json_t *answer, struct err *err);
