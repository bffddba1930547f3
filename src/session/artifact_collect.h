/* The artifacts of a run: files that it created or changed. The daemon reads a directory with few entries itself; a
 * child reads a larger one, while the run's answer waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/json_writer.h"

struct session;

/* Before each run: files that exist are not artifacts of the run. */
void artifact_collect_prepare(struct session *session);

/* The same for a run that the last daemon started at this wall clock time: files changed since then belong to the run.
 * */
void artifact_collect_resume(struct session *session, int64_t began_ms);

/* After the run: true if a child must collect the artifacts. False: the daemon has done it, and artifact_collect_now
 * returns them. */
bool artifact_collect_is_much(struct session *session);

/* Starts that child, and calls on_collected(session) when artifact_collect_now can return the result. False: no child
 * could be started. */
bool artifact_collect_begin(struct session *session, void (*on_collected)(struct session *session));

/* The new and changed artifacts as JSON: an array, or nothing. Those of an ephemeral box are copied out. */
void artifact_collect_now(struct session *session, struct json_writer *ret_array);
