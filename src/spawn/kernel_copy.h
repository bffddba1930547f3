/* The kernel's files for boxes of other engines: a copy in the data directory, with what Python compiles of them beside
 * it. A kernel there starts by exec, so otherwise each one compiles all of them again, which is half of its start. */
#pragma once

#include <sys/types.h>

struct kernel_copy {
        int fd; /* the directory to show to the box */
        pid_t compiler; /* 0: nothing is to be compiled */
};

/* Brings the copy up to date and starts to compile it; a box can be made in the meantime. If there can be no copy (the
 * disk is full), it opens the files themselves: a kernel starts later then. -errno if they cannot be opened either. */
int kernel_copy_open(const char *kernel_dir, const char *data_dir, struct kernel_copy *ret_copy);

/* Waits until it is compiled, within a bound. */
void kernel_copy_close(struct kernel_copy *copy);
