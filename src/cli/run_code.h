/* Where the code of a run comes from: -c, a file, standard input, or a command of the image. */
#pragma once

#include "cli/run_options.h"

/* Returned by run_code_choose when nothing was given and standard input is a terminal: the caller prints the usage. */
enum { RUN_CODE_CHOSEN, RUN_CODE_NONE };

/* Fills the request's language, code, name and arguments. Returns RUN_CODE_CHOSEN, RUN_CODE_NONE, or -1 with err. */
int run_code_choose(struct run_options *options, const struct option_rest *rest, struct err *err);
