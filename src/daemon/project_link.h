/* The links in a project, DIR/.sandbox/kernel.sock and kernel-api.sock, to the daemon's sockets. They are for people
 * and programs on the host; boxes see an empty directory in place of .sandbox (box/seal/rootfs.c). */
#pragma once

#include "base/err.h"

/* `link` is the path of the first; the other ends in "-api.sock", as its target does. Replaces links that a killed
 * daemon left. Anything else there stays: ERR_EXISTS. */
int project_link_make(const char *link, const char *socket_path, struct err *err);

/* Removes them, if they still lead to this daemon. */
void project_link_remove(const char *link, const char *socket_path);
