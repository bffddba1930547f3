/* What `ps` shows as the command line of a forked process that executes no program of its own. */
#pragma once

/* In main(), before all else: moves the arguments and the environment to other memory, so that nothing points to where
 * Linux reads the command line from. Returns the arguments, or those it was given when memory is short. */
char **process_title_init(int argc, char **argv);

/* Overwrites a secret in the memory that /proc/PID/environ and /proc/PID/cmdline show. */
void process_title_erase(const char *secret);

/* "glovebox: NAME DETAIL", as long as the arguments and the environment together at most. */
void process_title_set(const char *name, const char *detail);
