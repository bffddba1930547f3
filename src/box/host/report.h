/* The isolation report: what separates a box from the host, as it was enforced, for callers to read and to demand. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "box/cgroup/cgroup.h"
#include "box/spec.h"

/* A new reference. `weaker` lists what this host could not enforce; it is empty unless the caller allowed that. */
json_t *report_make(const struct box_spec *spec, const struct cgroup_host *host, bool rootless);
