/* Files, as other rows need them. */
#pragma once

#include "base/err.h"

/* What is read back may have any name; what is made here has one that can be shown, and means the same everywhere. */
int file_check_name(const char *relative, struct err *err);
