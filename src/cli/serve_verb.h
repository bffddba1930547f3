#pragma once

#include "cli/ui/option.h"

extern const struct option_table serve_option_table;

int verb_serve(int argc, char **argv);
