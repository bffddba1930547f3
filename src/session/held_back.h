/* The names of variables that kept a session from sleeping. The kernel sent them, so they are untrusted: they are cut
 * to a bounded list. */
#pragma once

#include <jansson.h>

enum { HELD_BACK_MAX = 10, HELD_BACK_BRIEF = 3 };

/* [{"context", "name", "type", "why"}], short and few; a new reference, or NULL if there is nothing. */
json_t *held_back_of(const json_t *answer);

/* The first few, without reasons: for lists of sessions. A new reference. */
json_t *held_back_brief(const json_t *held_back);
