#include "cli/run_phases.h"

#include <stdio.h>
#include <string.h>

#include "base/loop.h"
#include "base/memory.h"

enum { PHASES_MAX = 16 };

static struct {
        const char *name;
        uint64_t took_us;
} phases[PHASES_MAX];
static size_t n_phases;
static uint64_t begun_us, last_us;
static bool is_on;
static char way_taken[16] = "made here";

void run_phases_begin(bool is_wanted) {
        is_on = is_wanted;
        begun_us = last_us = is_wanted ? loop_now_us() : 0;
}

void run_phase(const char *name) {
        if (!is_on || n_phases == PHASES_MAX)
                return;
        uint64_t now_us = loop_now_us();
        phases[n_phases].name = name;
        phases[n_phases++].took_us = now_us - last_us;
        last_us = now_us;
}

void run_phase_way(const char *way) {
        if (way)
                (void) snprintf(way_taken, sizeof(way_taken), "%.15s", way);
}

static const char *explain_way(void) {
        static const struct {
                const char *name, *text;
        } ways[] = { { "pool", "from the daemon's pool, with its interpreter forked before" },
                     { "fork", "made by the daemon, with an interpreter forked from its nursery" },
                     { "cold", "made by the daemon, with an interpreter of its own" } };
        for (size_t i = 0; i < ELEMENTS(ways); i++)
                if (strcmp(ways[i].name, way_taken) == 0)
                        return ways[i].text;
        return "made here, without a daemon";
}

void run_phases_report(void) {
        if (!is_on)
                return;
        (void) fprintf(stderr, "glovebox: the box was %s\n", explain_way());
        for (size_t i = 0; i < n_phases; i++)
                (void) fprintf(stderr, "glovebox: %10.3f ms  %s\n", (double) phases[i].took_us / 1000, phases[i].name);
        (void) fprintf(stderr, "glovebox: %10.3f ms  in all\n", (double) (last_us - begun_us) / 1000);
}
