/* What an imported image says about commands: where they start (WORKDIR), and which one is its own (ENTRYPOINT and
 * CMD), run by `glovebox run --image NAME --` with no word behind the dashes. Both run in the box as its user, like any
 * other command, so that nothing is asked of the image's word but names within it. */
#pragma once

#include "cli/run_request.h"

/* For a command of an image that is not the host's; does nothing for anything else. A workspace of the caller's is
 * where a command starts, whatever the image says. */
int image_command_choose(struct run_request *request, struct err *err);
