/* `glovebox key ...`: the keys of the service. */
#pragma once

#include "cli/verb.h"

enum { KEY_PARTS = 3 };

extern const struct verb_part key_parts[KEY_PARTS];

int verb_key(int argc, char **argv);
