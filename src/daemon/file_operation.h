/* Functions that the operations on files share. */
#pragma once

#include "base/err.h"

struct caller;
struct file_request;
struct session;

/* The workspace that a request names and the path below it. The caller closes the descriptor; -1: refused. */
int file_operation_open_workspace(struct caller *caller, const struct file_request *request,
                                  char ret_relative[static 4096], struct session **ret_session, struct err *err);
