/* The daemon's log: lines on standard error. If no process reads them, the daemon does not wait: a line
 * that the target has no room for (a pipe that is full, a journal that is stopped, a terminal that is held) is dropped
 * and counted, and how many were dropped stands in the log as soon as there is room again. */
#pragma once

#include <stdint.h>

/* Finds out what standard error is. Before it, log lines may wait for their reader. */
void log_open(void);

/* How many lines were dropped since log_open. */
uint64_t log_dropped(void);

/* One line with the time. Control characters in it become "?". */
void daemon_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
