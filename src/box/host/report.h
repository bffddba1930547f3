/* The isolation report: the enforced separation of a box from the host. Callers can read it, and demand a minimum. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "box/cgroup/cgroup.h"
#include "box/spec.h"

/* A new reference. `weaker` lists what this host could not enforce; it is empty unless the caller allowed that. */
json_t *report_make(const struct box_spec *spec, const struct cgroup_host *host, bool rootless);
