/* What to do next, from the last words of code that has failed: they are printed by other programs, which do not know
 * that they run in a box. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "cli/run_request.h"

/* A part of the message with which pip refuses to install into the image (PEP 668). */
#define RUN_HINT_PIP_REFUSAL "externally-managed-environment"

/* The same of curl whose request the proxy of the box refused; the status follows. */
#define RUN_HINT_PROXY "CONNECT tunnel failed, response "

/* True if a program's messages say that it could not reach another host. */
bool run_hint_is_about_network(const char *words, size_t size);

/* The run has failed, and this is the end of its standard error: if it lacked a module, a file that is beside the script
 * or in the current directory, or a network, or if the code is a cell of a notebook, prints that. */
void run_hint_print(const struct run_request *request, const char *last_words, size_t size);

/* The same for code in a session, whose error has this traceback: only the code's text is sent to a session. */
void run_hint_print_in_session(const struct run_request *request, const char *session, const char *traceback);
