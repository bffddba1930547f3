#include "session/tally.h"

#include <string.h>

const char *const tally_end_names[TALLY_ENDS] = {
        [TALLY_OK] = "ok",         [TALLY_ERROR] = "error",   [TALLY_TIMEOUT] = "timeout",
        [TALLY_OOM] = "oom",       [TALLY_DISK] = "disk",       [TALLY_KILLED] = "killed", [TALLY_INTERRUPTED] = "interrupted",
        [TALLY_REFUSED] = "refused",
};

const uint64_t tally_spans_us[TALLY_SPANS] = { 1000, 5000, 25000, 100000, 500000, 2500000, 10000000, 60000000 };

static enum tally_end end_of(const char *status) {
        for (int i = 0; i < TALLY_REFUSED; i++)
                if (status && strcmp(status, tally_end_names[i]) == 0)
                        return (enum tally_end) i;
        return TALLY_ERROR;
}

void tally_count_run(struct tally *tally, const char *status, uint64_t duration_us) {
        size_t span = 0;
        while (span < TALLY_SPANS && duration_us > tally_spans_us[span])
                span++;
        tally->runs_within[span]++;
        tally->run_us += duration_us;
        tally->runs_ended[end_of(status)]++;
}
