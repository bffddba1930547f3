/* A file as an answer: ranges, conditions, and a head that lets no browser run what code in a sandbox wrote. */
#pragma once

#include <sys/stat.h>

struct api_request;

/* The last thing that is done with the api_request. Takes the descriptor. `name` is what the client saves it as. */
void serving_begin(struct api_request *api_request, int fd, const struct stat *status, const char *name);

/* "attachment" with this name, in any alphabet. 0, or -1: out of memory. */
int serving_name(struct api_request *api_request, const char *name);
