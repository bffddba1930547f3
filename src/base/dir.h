/* Directories: reading one, and closing it at the end of its scope. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/fd.h" /* _cleanup_ */

static inline void dir_close(DIR **directory) {
        if (*directory)
                (void) closedir(*directory);
}

#define _cleanup_dir_ _cleanup_(dir_close)

/* The next entry besides "." and ".."; NULL at the end, with errno 0, or after a failure. */
static inline struct dirent *dir_next(DIR *directory) {
        struct dirent *entry;
        do {
                errno = 0;
                entry = readdir(directory);
        } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
        return entry;
}
