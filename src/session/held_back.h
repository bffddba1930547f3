/* Why a session could not be put to sleep: the names that its kernel gave, which may be anything, cut to what is worth
 * keeping and showing. */
#pragma once

#include <jansson.h>

enum { HELD_BACK_MAX = 10, HELD_BACK_BRIEF = 3 };

/* [{"context", "name", "type", "why"}], short and few; a new reference, or NULL if there is nothing. */
json_t *held_back_of(const json_t *answer);

/* The first few, without reasons: for lists of sessions. A new reference. */
json_t *held_back_brief(const json_t *held_back);
