/* Paths inside an image. */
#pragma once

#include "base/err.h"
#include "image/bounds.h"

/* Cleans a path of an archive: leading "/" and "./", doubled "/" and "." go; ".." is refused, and so are components
 * over 255 bytes and more than BOUND_DEPTH of them. The root itself becomes "". */
int path_clean(const char *path, char ret_clean[static BOUND_PATH + 1], struct err *err);

/* Splits a clean path into its parent ("" for the root) and its last component, which points into `clean`. */
const char *path_split(const char *clean, char ret_parent[static BOUND_PATH + 1]);

/* Bytes of a foreign path for a message: what is not printable ASCII becomes "?", at most 200 bytes. */
const char *path_for_message(const char *path, char buffer[static 204]);
