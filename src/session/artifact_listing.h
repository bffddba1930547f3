/* The list of a workspace's artifacts. The daemon reads a short one itself, a child reads a long one: code in the box
 * decides how many there are. */
#pragma once

#include "base/err.h"
#include "store/artifact.h"

struct caller;

/* Takes the workspace's descriptor, and calls `done` with it and the list, both to be taken, now or later, unless the
 * caller has left by then; with NULL and -1 when there is no list. -1: it is never called. */
typedef void artifact_listed(struct caller *caller, struct artifact_list *list, int workspace_fd);
int artifact_listing_get(struct caller *caller, int workspace_fd, artifact_listed *done, struct err *err);
