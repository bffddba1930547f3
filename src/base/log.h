/* The daemon's log: lines on standard error. If no process reads them, the daemon does not wait: if standard error has
 * no room (a full pipe, a stopped journal, a terminal on hold), the line is dropped and counted. The log mentions the
 * number of dropped lines as soon as there is room again. */
#pragma once

#include <stdint.h>

/* Finds out what standard error is. Before this call, logging may block. */
void log_open(void);

/* The number of lines dropped since log_open. */
uint64_t log_dropped(void);

/* One line with the time. Control characters in it become "?". */
void daemon_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
