/* Imports an archive file as an image. */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct import_result {
        uint64_t entries, bytes, skipped;
        uint64_t lost_env; /* variables of the image that a box will not have */
        char kind[16];
        char python[256]; /* as found in the image, or "" */
        char shell[256];
        char architecture[32]; /* as the archive says, or "" */
};

/* Unpacks `file` (a tar file, a directory, or "-": standard input) as the image `name`. Whole or not at all, Ctrl-C
 * included. */
int import_image(const char *data_dir, const char *name, const char *file, uint64_t max_bytes,
                 struct import_result *ret_result, struct err *err);
