/* The daemon's UNIX socket. A stale one is replaced, a live one never. */
#pragma once

#include "base/err.h"

struct daemon;

int listener_open(struct daemon *daemon, struct err *err);
void listener_close(struct daemon *daemon);
