/* What a run left behind: artifacts that were not there, or not so, when it began. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct session;

/* Before a session's first run: what is there already is nobody's harvest. */
void harvest_prepare(struct session *session);

/* Did an ephemeral run leave more than the daemon should copy itself? */
bool harvest_is_much(struct session *session);

/* Then a child copies it out, and harvested(session) is called when it is there for harvest_collect to give. False:
 * there is no child to be had. */
bool harvest_begin(struct session *session, void (*harvested)(struct session *session));

/* After a run: the new and changed ones as JSON (a new reference), copied out of an ephemeral box. */
json_t *harvest_collect(struct session *session, const char *run_id);
