#include "cli/ui/limit_text.h"

#include <stdio.h>

#include "base/units.h"

void limit_text_timeout(char *ret_text, size_t room, uint64_t timeout_ms) {
        (void) snprintf(ret_text, room,
                        "time limit %g s reached: the run was stopped; raise --timeout or do less in one run",
                        (double) timeout_ms / 1000);
}

void limit_text_memory(char *ret_text, size_t room, uint64_t limit_bytes, uint64_t peak_bytes) {
        char limit[32], peak[32];
        (void) snprintf(ret_text, room,
                        "memory limit %s reached (peak %s): the run was stopped; raise --memory or process the data in "
                        "chunks (files in /workspace, /tmp and /dev/shm of an ephemeral run count as memory)",
                        units_format_bytes(limit_bytes, limit), units_format_bytes(peak_bytes, peak));
}
