/* The daemon's UNIX socket. It replaces a socket that no daemon listens on, and no other. */
#pragma once

#include "base/err.h"

struct daemon;

int listener_open(struct daemon *daemon, struct err *err);
void listener_close(struct daemon *daemon);
