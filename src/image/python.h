/* Which of the host's Python interpreters the host image uses. */
#pragma once

#include "base/err.h"

#define PYTHON_OF_SYSTEM "/usr/bin/python3"

struct python {
        char path[256];   /* the interpreter itself, never a shim or a virtual environment's link */
        char prefix[256]; /* what must be shown at the same path when it lies outside /usr; "" when it does not */
        char version[16]; /* "3.11" */
        char why[80];     /* "$GLOVEBOX_PYTHON", "/usr/bin/python3 exists", "first python3 in PATH" */
};

/* $GLOVEBOX_PYTHON, else /usr/bin/python3, else the first python3 in PATH. An interpreter that is not Debian's own is
 * run once to report its prefix; the answer is kept in <host_fd>/python.json (host_fd: images/host, or -1) for as long
 * as the file stays the same. ERR_NOT_FOUND when the host has none. */
int python_choose(int host_fd, struct python *ret_python, struct err *err);
