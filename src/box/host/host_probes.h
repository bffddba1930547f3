/* The table of probes that host_look runs, in the order in which they are shown. */
#pragma once

#include "box/host/host.h"

extern const struct host_probe host_probes[];
extern const size_t host_probes_count;
