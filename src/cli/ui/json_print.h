/* Prints an answer of the daemon for programs. */
#pragma once

#include <jansson.h>

#include "base/err.h"

/* One line of JSON on standard output, without the member "ok". */
int json_print_answer(const json_t *answer, struct err *err);
