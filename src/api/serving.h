/* A file as an answer: ranges, conditions, and a head that lets no browser run what code in a sandbox wrote. */
#pragma once

#include <sys/stat.h>

struct exchange;

/* The last thing that is done with the exchange. Takes the descriptor. `name` is what the client saves it as. */
void serving_begin(struct exchange *exchange, int fd, const struct stat *status, const char *name);

/* "attachment" with this name, in any alphabet. 0, or -1: out of memory. */
int serving_name(struct exchange *exchange, const char *name);
