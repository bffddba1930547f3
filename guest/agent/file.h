/* Operations on files of the box for the host. All follow links like any program in the box. */
#pragma once

#include "request.h"

int file_stat(struct request *request);
int file_list(struct request *request);
int file_read(struct request *request);
int file_move(struct request *request);
int file_mkdir(struct request *request);
