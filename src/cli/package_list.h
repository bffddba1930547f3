/* Packages as the command line has them: "numpy,pandas>=2,<3 rdkit" is three. */
#pragma once

#include <stddef.h>

/* Cuts the text in place, at commas and blanks; a comma before an operator belongs to the version. */
size_t package_list_split(char *text, const char **ret_packages, size_t max);
