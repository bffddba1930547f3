/* Runs one command, with the client's standard input if the client offers it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* Runs what `argv`, `cwd`, `env`, `stdin` and `input` of the request say. The exit status as in a shell, or -1 when the
 * request is no command. *ret_interrupted: SIGINT came, and its whole group was ended. */
int command_run(json_t *request, int signal_fd, bool *ret_interrupted);

/* Reaps processes that commands left in the background and that have ended. */
void command_reap(void);
