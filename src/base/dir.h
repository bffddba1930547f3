/* A directory that is closed at the end of its scope. */
#pragma once

#include <dirent.h>

#include "base/fd.h" /* _cleanup_ */

static inline void dir_close(DIR **directory) {
        if (*directory)
                (void) closedir(*directory);
}

#define _cleanup_dir_ _cleanup_(dir_close)
