/* Files, as other rows need them. */
#pragma once

#include "base/err.h"
#include "store/workspace.h"

struct api_request;

/* The workspace of the sandbox that the path names: a descriptor that the caller closes, or -1. */
int file_open_workspace(const struct api_request *api_request, struct err *err);

/* Answers with a file, or with what is in a directory. -1: not answered yet. */
int file_show(struct api_request *api_request, int workspace_fd, const char *relative, enum workspace_links links,
              struct err *err);

/* What is read back may have any name; what is made here has one that can be shown, and means the same everywhere. */
int file_check_name(const char *relative, struct err *err);
