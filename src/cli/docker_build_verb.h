/* `glovebox image docker-build`: the standard image of boxes of docker and podman. */
#pragma once

#include "cli/ui/option.h"

enum { DOCKER_BUILD_ROWS = 11 };

extern const struct option_row docker_build_rows[DOCKER_BUILD_ROWS];

/* `args` without the verb and its part. Returns the exit status. */
int docker_build_verb(char **args);
