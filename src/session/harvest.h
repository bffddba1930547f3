/* What a run left behind: artifacts that were not there, or not so, when it began. A directory with few entries is looked
 * at on the spot; any other by a child, while the run's answer waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "session/json_text.h"

struct session;

/* Before each run: what is there already is nobody's harvest. */
void harvest_prepare(struct session *session);

/* The same in the middle of a run that another daemon began, at this wall clock time: what changed since is the run's. */
void harvest_resume(struct session *session, int64_t began_ms);

/* After it: is it more than the daemon should look at or copy itself? If not, it is done, for harvest_collect to give. */
bool harvest_is_much(struct session *session);

/* Then a child does it, and harvested(session) is called when it is there for harvest_collect to give. False: there is
 * no child to be had. */
bool harvest_begin(struct session *session, void (*harvested)(struct session *session));

/* The new and changed ones as JSON, an array, or nothing; those of an ephemeral box are copied out. */
void harvest_collect(struct session *session, struct json_text *ret_array);
