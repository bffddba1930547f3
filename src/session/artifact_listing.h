/* The list of a workspace's artifacts. The daemon reads a short one itself, a child reads a long one: code in the box
 * decides how many there are. */
#pragma once

#include "base/err.h"
#include "store/artifact.h"

struct caller;

/* Takes the workspace's descriptor. Calls `done` with it and the list, now or later, and gives both away; with NULL and
 * -1 if there is no list. A caller that has disconnected gets no call. Returns -1: `done` is never called. */
typedef void artifact_listed(struct caller *caller, struct artifact_list *list, int workspace_fd);
int artifact_listing_get(struct caller *caller, int workspace_fd, artifact_listed *done, struct err *err);
