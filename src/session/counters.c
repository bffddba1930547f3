#include "session/counters.h"

#include <string.h>

const char *const counters_end_names[COUNTERS_ENDS] = {
        [COUNTERS_OK] = "ok",
        [COUNTERS_ERROR] = "error",
        [COUNTERS_TIMEOUT] = "timeout",
        [COUNTERS_OOM] = "oom",
        [COUNTERS_DISK] = "disk",
        [COUNTERS_KILLED] = "killed",
        [COUNTERS_INTERRUPTED] = "interrupted",
        [COUNTERS_REFUSED] = "refused",
};

const uint64_t counters_spans_us[COUNTERS_SPANS] = { 1000, 5000, 25000, 100000, 500000, 2500000, 10000000, 60000000 };

static enum counters_end end_of(const char *status) {
        for (int i = 0; i < COUNTERS_REFUSED; i++)
                if (status && strcmp(status, counters_end_names[i]) == 0)
                        return (enum counters_end) i;
        return COUNTERS_ERROR;
}

void counters_count_run(struct counters *counters, const char *status, uint64_t duration_us) {
        size_t span = 0;
        while (span < COUNTERS_SPANS && duration_us > counters_spans_us[span])
                span++;
        counters->runs_within[span]++;
        counters->run_us += duration_us;
        counters->runs_ended[end_of(status)]++;
}
