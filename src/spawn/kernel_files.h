/* Where the kernel's own Python files are on this host. */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* $GLOVEBOX_KERNEL_DIR; beside the program in a build tree; in the share directory of an installation. */
int kernel_files_find(char *ret_path, size_t room, struct err *err);
