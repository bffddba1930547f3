/* The files beside a script on the host: shown in the box, read-only, at /run/code. The run's empty workspace has links
 * with their names: a script that opens "data.csv" finds the file beside it. */
#pragma once

#include "cli/run_request.h"

/* A part of the message with which pip refuses to install into the image (PEP 668). */
#define RUN_PIP_REFUSAL "externally-managed-environment"

/* True if a program's messages say that it could not reach another host. */
bool run_neighbours_tell_of_network(const char *words, size_t size);

/* Decides whether the script's directory is shown, and which. One that every user can write to, or that the mount
 * policy forbids, is not: then the script is alone, and the request says why. The policy is asked here, with the
 * caller's own HOME, and by the process that makes the box: the user did not name this directory. */
int run_neighbours_choose(struct run_request *request, struct err *err);

/* Before this process makes the box: checks the files below that directory, too, which can take long. */
int run_neighbours_confirm(struct run_request *request, struct err *err);

/* Puts the links into the workspace, by its descriptor. */
void run_neighbours_link(const struct run_request *request, int workspace_fd);

/* The run has failed, and this is the end of its standard error: if it missed a file that is beside the script or in
 * the current directory, or if the code is a cell of a notebook, prints that. */
void run_neighbours_hint(const struct run_request *request, const char *last_words, size_t size);

/* The same for code in a session, whose error has this traceback: only the code's text is sent to a session. */
void run_neighbours_hint_in_session(const struct run_request *request, const char *session, const char *traceback);
