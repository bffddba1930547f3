/* A terminal for a process: the agent holds one side, the process the other as its controlling terminal. */
#pragma once

#include <stdint.h>

#include "stream.h"

/* As streams_open, with one stream of output. */
int terminal_open(struct streams *ret_streams, uint32_t rows, uint32_t columns, int ret_theirs[static 3]);

/* 0 or -errno. The foreground process group gets SIGWINCH. */
int terminal_resize(int terminal_fd, uint32_t rows, uint32_t columns);

/* The key that ends input: usually control-D. */
char terminal_end_key(int terminal_fd);
