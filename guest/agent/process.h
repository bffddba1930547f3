/* One process that the host requested. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct identity;

struct process {
        char *cwd;
        char **argv, **envp;
        const int *fds; /* become 0, 1, 2, …; borrowed. A missing one of the first three is /dev/null */
        size_t n_fds;
        const struct identity *identity; /* its user, in a box with users; NULL: the agent's */
        bool terminal; /* descriptor 0 is one, and becomes the controlling terminal */
        pid_t pid; /* set by process_start */
};

/* Starts it: own session, default signals, first in line for the OOM killer. 0 or -errno, with *ret_step saying what
 * failed; a command that cannot be executed is a failure here, not an exit status. */
int process_start(struct process *process, const char **ret_step);

/* Sends a signal to the process or its group, if it still exists. */
void process_signal(pid_t pid, int signal_number, bool whole_group);

void process_release(struct process *process);
