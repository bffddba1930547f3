/* The daemon's UNIX socket. It replaces a socket that no daemon listens on, and no other. */
#pragma once

#include "base/err.h"

struct daemon;

int listener_open(struct daemon *daemon, struct err *err);
void listener_close(struct daemon *daemon);
/* Removes the directory that listener_open made, if nothing else is in it. */
void listener_remove_dir(const struct daemon *daemon);
