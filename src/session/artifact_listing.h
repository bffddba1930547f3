/* The artifacts of a workspace, listed for somebody. Few are looked at on the spot, many by a child: how many there are
 * is the choice of the code in the box. */
#pragma once

#include "base/err.h"
#include "store/artifact.h"

struct caller;

/* Calls `done` with the list (to be taken), now or later, unless the caller has left by then; with NULL when it cannot be
 * had. `workspace_fd` is borrowed. -1: it is never called. */
typedef void artifact_listed(struct caller *caller, struct artifact_list *list);
int artifact_listing_get(struct caller *caller, int workspace_fd, artifact_listed *done, struct err *err);
