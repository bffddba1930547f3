/* Functions on files that other routes need. */
#pragma once

#include "base/err.h"

/* Existing files may have any name; new ones get a name that is printable and has one meaning on all systems. */
int file_check_name(const char *relative, struct err *err);
