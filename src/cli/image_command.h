/* The commands of an imported image: the directory in which they start (WORKDIR), and its own command (ENTRYPOINT and
 * CMD), which `glovebox run --image NAME --` runs if no word follows the dashes. Both run in the box as its user, like
 * any other command, so the image needs no trust: only names within it are used. */
#pragma once

#include "cli/run_request.h"

/* For a command of an image that is not the host's; else does nothing. If the caller names a workspace, the command
 * starts there, not in the image's WORKDIR. */
int image_command_choose(struct run_request *request, struct err *err);
