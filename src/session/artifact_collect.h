/* What a run left behind: artifacts that were not there, or not so, when it began. A directory with few entries is
 * looked at on the spot; any other by a child, while the run's answer waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/json_writer.h"

struct session;

/* Before each run: files that exist are not artifacts of the run. */
void artifact_collect_prepare(struct session *session);

/* The same in the middle of a run that another daemon began, at this wall clock time: what changed since is the
 * run's. */
void artifact_collect_resume(struct session *session, int64_t began_ms);

/* After it: is it more than the daemon should look at or copy itself? If not, it is done, for artifact_collect_now to
 * give. */
bool artifact_collect_is_much(struct session *session);

/* Then a child does it, and on_collected(session) is called when it is there for artifact_collect_now to give. False:
 * there is no child to be had. */
bool artifact_collect_begin(struct session *session, void (*on_collected)(struct session *session));

/* The new and changed ones as JSON, an array, or nothing; those of an ephemeral box are copied out. */
void artifact_collect_now(struct session *session, struct json_writer *ret_array);
