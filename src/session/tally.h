/* What happened since the daemon began, counted where it happens and read by /metrics. Numbers only go up. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* How runs end: the statuses of a result, and those that never became one. */
enum tally_end {
        TALLY_OK,
        TALLY_ERROR,
        TALLY_TIMEOUT,
        TALLY_OOM,
        TALLY_DISK,
        TALLY_KILLED,
        TALLY_INTERRUPTED,
        TALLY_REFUSED, /* never started */
        TALLY_ENDS
};

enum { TALLY_SPANS = 8 }; /* of the histogram; one more is for what took longer */

struct tally {
        uint64_t runs_started;
        uint64_t runs_ended[TALLY_ENDS];
        uint64_t runs_within[TALLY_SPANS + 1]; /* each counted once, in the first span that holds it */
        uint64_t run_us;                       /* of all runs together */
        uint64_t kernels_forked, kernels_cold, kernels_failed;
};

extern const char *const tally_end_names[TALLY_ENDS];
extern const uint64_t tally_spans_us[TALLY_SPANS];

/* A status that is none of ours counts as an error. */
void tally_count_run(struct tally *tally, const char *status, uint64_t duration_us);
