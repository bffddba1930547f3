/* The command line and name of a process in `ps`, for forked processes that execute no other program. */
#pragma once

/* Call it first in main(): copies the arguments and the environment, so that the memory from which Linux reads the
 * command line can be overwritten. Returns the copied arguments, or `argv` if memory is short. */
char **process_title_init(int argc, char **argv);

/* Overwrites a secret in the memory that /proc/PID/environ and /proc/PID/cmdline show. */
void process_title_erase(const char *secret);

/* Sets the command line to "glovebox: NAME DETAIL", cut to the size of the original arguments and environment, and the
 * name of the process to "glovebox-NAME", cut to 15 characters. */
void process_title_set(const char *name, const char *detail);
