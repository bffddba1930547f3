/* A Python module that an image lacks: where it comes from. */
#pragma once

#include <stdbool.h>

/* The package that has this top-level module: most have its name. NULL: it is a part of Python itself, which pip cannot
 * add. */
const char *missing_module_package(const char *module);

/* True if `glovebox image build` installs this package. */
bool missing_module_is_standard(const char *package);
