/* Reads the resources that a box has used. The files stay open, so that a reading after each run costs three small
 * system calls and no lookup. */
#pragma once

#include "box/cgroup/cgroup.h"

struct cgroup_meter {
        int oom_fd, peak_fd, cpu_fd; /* -1 if the host does not report it */
        bool cpu_in_ns;
};

#define CGROUP_METER_NONE ((struct cgroup_meter) { .oom_fd = -1, .peak_fd = -1, .cpu_fd = -1 })

void cgroup_meter_open(const struct cgroup *cgroup, struct cgroup_meter *ret_meter);
/* The same for the groups that a process is in, whoever made them. Groups that are not visible here are not
 * reported. */
void cgroup_meter_open_of(pid_t pid, struct cgroup_meter *ret_meter);
void cgroup_meter_close(struct cgroup_meter *meter);

uint64_t cgroup_meter_read_cpu(const struct cgroup_meter *meter); /* microseconds; 0 if unknown */

/* Fills oom_kills (since the group was made), memory_peak_bytes and cpu_us; unknown values are 0. */
void cgroup_meter_read(const struct cgroup_meter *meter, struct cgroup_usage *ret_usage);
