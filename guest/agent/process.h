/* One process that the host asked for. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct process {
        char *cwd;
        char **argv, **envp;
        const int *fds; /* become 0, 1, 2, …; borrowed. What is missing of the first three is /dev/null */
        size_t n_fds;
        pid_t pid; /* set by process_start */
};

/* Starts it: own session, default signals, first in line for the OOM killer. 0 or -errno, with *ret_step saying what
 * failed; a command that cannot be executed is a failure here, not an exit status. */
int process_start(struct process *process, const char **ret_step);

void process_release(struct process *process);
