/* Paths in requests of the host: absolute paths in the box, resolved with the rights of the box. */
#pragma once

#include "wire/frame.h"

/* The next field as a path, to be freed by the caller. 0, -EPROTO, or -EINVAL for one that is not absolute. */
int path_get(struct frame_reader *fields, char **ret_path);

/* Opens the directory that the path lies in and finds the last name, which stays part of the path. A descriptor
 * (O_PATH) or -errno; -EINVAL where there is no such name. */
int path_open_parent(const char *path, const char **ret_name);
