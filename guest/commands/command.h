/* Runs one command, with the client's standard input if the client offers it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* Runs the command in `argv`, `cwd`, `env`, `stdin` and `input` of the request. Returns the exit status as in a shell,
 * or -1 if the request has no command. *ret_interrupted: SIGINT came, and its whole group was ended. */
int command_run(json_t *request, int signal_fd, bool *ret_interrupted);

/* Reaps processes that commands left in the background and that have ended. */
void command_reap(void);
