/* Counters of events since the daemon started, for /metrics. They only increase. */
#pragma once

#include <stdint.h>

/* The ends of runs: the statuses of a result, and runs without one. */
enum counters_end {
        COUNTERS_OK,
        COUNTERS_ERROR,
        COUNTERS_TIMEOUT,
        COUNTERS_OOM,
        COUNTERS_DISK,
        COUNTERS_KILLED,
        COUNTERS_INTERRUPTED,
        COUNTERS_REFUSED, /* never started */
        COUNTERS_ENDS
};

enum { COUNTERS_SPANS = 8 }; /* of the histogram; one more counts longer runs */

struct counters {
        uint64_t runs_started;
        uint64_t runs_ended[COUNTERS_ENDS];
        uint64_t runs_within[COUNTERS_SPANS + 1]; /* each counted once, in the first span that holds it */
        uint64_t run_us;                       /* of all runs together */
        uint64_t kernels_forked, kernels_cold, kernels_failed;
};

extern const char *const counters_end_names[COUNTERS_ENDS];
extern const uint64_t counters_spans_us[COUNTERS_SPANS];

/* An unknown status counts as an error. */
void counters_count_run(struct counters *counters, const char *status, uint64_t duration_us);
