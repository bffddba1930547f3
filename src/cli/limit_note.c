#include "cli/limit_note.h"

#include <stdio.h>
#include <unistd.h>

#include "base/units.h"
#include "box/cgroup/cgroup.h"
#include "engine/engine.h"

static bool can_limit_memory(void) {
        struct cgroup_host host;
        cgroup_host_look(&host);
        return host.usable[CGROUP_MEMORY];
}

void limit_note_print(const struct run_request *request) {
        const struct limits standard = LIMITS_DEFAULT;
        uint64_t asked = request->limits.memory_bytes;
        uint64_t has = (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE);
        char asked_text[32], has_text[32];
        if (request->quiet || request->json || (request->engine && !engine_is_native(request->engine)) || asked == 0 ||
            asked == standard.memory_bytes)
                return;
        if (asked > has)
                (void) fprintf(stderr,
                               "glovebox: --memory %s is more than this host has (%s): the host's memory ends before "
                               "the limit is reached\n",
                               units_format_bytes(asked, asked_text), units_format_bytes(has, has_text));
        if (request->allow_weaker && !can_limit_memory())
                (void) fprintf(stderr,
                               "glovebox: --memory %s is not kept: this host has no control group for memory, and "
                               "--allow-weaker runs without it; only the address space of each process is bounded\n",
                               units_format_bytes(asked, asked_text));
}
