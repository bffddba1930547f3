/* The seat of a box: a private directory of the daemon that holds what an engine mounts into the box.
 *
 *   /run/glovebox-boxes/<name>/in/socket   the agent connects here once; gone afterwards
 *   /run/glovebox-boxes/<name>/in/proxy    the proxy accepts here, where the box has a relay (guest/entry/relay.h)
 *   /run/glovebox-boxes/<name>/0, 1, …     mounts, attached here until the engine has mounted them
 *   <data>/engine/agent, entry             our programs (/run cannot be executed from on many hosts)
 *
 * An engine takes paths, and a tenant could replace part of a path before the engine follows it. So the maker opens
 * each source as for a native box, with the same id mapping, and attaches it in this directory, where only root
 * can write.
 * Once the box runs, the engine has its own mounts, and the maker detaches these.
 * A daemon that is not root attaches nothing and gives the engine the paths themselves. A user's podman can do no more
 * with them than the user; a member of the group docker is as good as root anyway.
 * The seat is not below the data directory: `rm -r` of that would delete the users' files that are attached here. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "box/spec.h"
#include "engine/engine.h"

#define SEAT_ROOT "/run/glovebox-boxes"

enum { SEAT_MOUNTS_MAX = 64 };

/* Call once, before any other function. `is_users`: the daemon is not root; its seats are below its data directory, and
 * nothing is attached there. Keeps the pointer. */
void seat_know(const char *data_dir, bool is_users);

struct seat {
        char path[512];
        int listen_fd;
        struct engine_mount mounts[SEAT_MOUNTS_MAX];
        size_t n_mounts;
        char sources[SEAT_MOUNTS_MAX][560];
        bool attached[SEAT_MOUNTS_MAX];
};

/* Makes the directory and the socket, and adds our programs. The struct is large: keep it off deep stacks. */
int seat_open(const char *data_dir, const char *name, struct seat *ret_seat, struct err *err);

/* Makes the proxy's listening socket in the seat. Returns the descriptor, or -1. */
int seat_open_proxy(const struct seat *seat, struct err *err);

/* Adds a mount (borrowed). If the daemon is not root, tree_fd is the source directory itself. */
int seat_show_tree(struct seat *seat, const struct box_mount *mount, struct err *err);

/* Adds a path that only the daemon can change. */
int seat_show_path(struct seat *seat, const char *source, const char *destination, bool writable, struct err *err);

/* Adds a tmpfs that the engine makes. */
int seat_show_tmpfs(struct seat *seat, const char *destination, uint64_t bytes, struct err *err);

/* Detaches all mounts and closes the socket; the directory stays, since the box has it mounted. */
void seat_release(struct seat *seat);

/* Removes the directory of a box that no longer exists. */
void seat_remove(const char *name);

/* Removes seats whose name begins with `prefix`, unless they are younger than two minutes or `is_used` returns true. */
void seat_sweep(const char *prefix, bool (*is_used)(const char *name, void *context), void *context);
