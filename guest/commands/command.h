/* One command: started, fed with the client's input where it offers one, and waited for. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* Runs what `argv`, `cwd`, `env`, `stdin` and `input` of the request say. The exit status as in a shell, or -1 when the
 * request is no command. *ret_interrupted: SIGINT came, and its whole group was ended. */
int command_run(json_t *request, int signal_fd, bool *ret_interrupted);

/* Collects processes that a command left behind and that have ended since. */
void command_reap(void);
