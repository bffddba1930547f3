/* How long each part of a run took, for --verbose. */
#pragma once

#include <stdbool.h>

/* Starts the clock, if phases are to be printed. */
void run_phases_begin(bool is_wanted);

/* This part is over. */
void run_phase(const char *name);

/* "pool", "fork", "cold": where the box and its interpreter came from. */
void run_phase_way(const char *way);

/* On standard error. */
void run_phases_report(void);
