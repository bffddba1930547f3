/* The files beside a script on the host: shown in the box, read-only, at /run/code. The run's empty workspace has links
 * with their names: a script that opens "data.csv" finds the file beside it. */
#pragma once

#include "cli/run_request.h"

/* Decides whether the script's directory is shown, and which. One that every user can write to, or that the mount
 * policy forbids, is not: then the script is alone, and the request says why. The policy is asked here, with the
 * caller's own HOME, and by the process that makes the box: the user did not name this directory. */
int run_script_files_choose(struct run_request *request, struct err *err);

/* Before this process makes the box: checks the files below that directory, too, which can take long. */
int run_script_files_confirm(struct run_request *request, struct err *err);

/* Puts the links into the workspace, by its descriptor. */
void run_script_files_link(const struct run_request *request, int workspace_fd);
