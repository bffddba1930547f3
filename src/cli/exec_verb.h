/* Running code in a session for a person who watches: `exec`, and each line of `repl`. */
#pragma once

#include "cli/session_request.h"

/* Runs options->run.request in the session, which is made when it does not exist. Returns the exit status, or -1. */
int exec_run(const struct session_options *options, const char *session, struct err *err);

/* The same, or installs packages from outside if the code is only an install, which cannot work in a box. An install
 * that fails is reported here, and does not end a repl. */
int exec_run_or_install(const struct session_options *options, const char *session, struct err *err);

extern const struct option_table repl_option_table;
int verb_repl(int argc, char **argv);
