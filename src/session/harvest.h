/* What a run left behind: artifacts that were not there, or not so, when it began. */
#pragma once

#include <jansson.h>

struct session;

/* Before a session's first run: what is there already is nobody's harvest. */
void harvest_prepare(struct session *session);

/* After a run: the new and changed ones as JSON (a new reference), copied out of an ephemeral box. */
json_t *harvest_collect(struct session *session, const char *run_id);
