/* An imported root file system: the parts that a box shows, and the programs in it. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "image/image.h"

/* Adds trees and links for everything at the top of root_fd, except the directories that a box makes itself. After a
 * failure, what was added stays in the image for image_close. */
int rootfs_show(int root_fd, struct image *image, struct err *err);

/* Looks for Python and a shell, along the image's own PATH (`env`, its "Env" list, or NULL) and then in the usual
 * places. Nothing of the image is run. "" when there is none. */
void rootfs_find_programs(int root_fd, const json_t *env, char ret_python[static 256], char ret_shell[static 256]);
