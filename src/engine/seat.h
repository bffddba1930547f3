/* The seat of a box: a directory of the daemon's own from which an engine mounts.
 *
 *   /run/glovebox-boxes/<name>/in/socket   the agent connects here once; gone afterwards
 *   /run/glovebox-boxes/<name>/in/proxy    the proxy accepts here, where the box has a relay (guest/entry/relay.h)
 *   /run/glovebox-boxes/<name>/0, 1, …     trees that are to be shown, attached until the engine has mounted them
 *   <data>/engine/agent, entry             our programs (/run cannot be executed from on many hosts)
 *
 * An engine is told paths; a path that a tenant or a caller chose could be exchanged before the engine follows it. So
 * whatever is shown is opened by the maker as for a native box, with the ids mapped in the same way, and attached in
 * this directory, where nobody else can write. When the box is there, the engine has mounts of its own, and ours go.
 * A daemon that is not root attaches nothing: its engine is told the paths themselves, and can do no more with them than
 * the user can, or (group docker) what the user can do anyway.
 * Not below the data directory, which people remove with all that is in it: what is attached here is their files. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "box/spec.h"
#include "engine/engine.h"

#define SEAT_ROOT "/run/glovebox-boxes"

enum { SEAT_MOUNTS_MAX = 64 };

/* Once, before any other: a daemon that is not root has its seats below its data directory, where nothing is attached
 * (`is_users`). The text is borrowed for good. */
void seat_know(const char *data_dir, bool is_users);

struct seat {
        char path[512];
        int listen_fd;
        struct engine_mount mounts[SEAT_MOUNTS_MAX];
        size_t n_mounts;
        char sources[SEAT_MOUNTS_MAX][560];
        bool attached[SEAT_MOUNTS_MAX];
};

/* Makes the directory and the socket, and shows our programs. The seat is large: not for the stack of a deep call. */
int seat_open(const char *data_dir, const char *name, struct seat *ret_seat, struct err *err);

/* Makes the socket of the proxy in it, listening. Returns the descriptor, or -1. */
int seat_open_proxy(const struct seat *seat, struct err *err);

/* Shows a tree (borrowed) at a destination of the box. Of a daemon that is not root it is the source itself, open. */
int seat_show_tree(struct seat *seat, const struct box_mount *mount, struct err *err);

/* Shows a path of ours once more, or one that needs no tree. */
int seat_show_path(struct seat *seat, const char *source, const char *destination, bool writable, struct err *err);

/* Shows a tmpfs of the engine's own. */
int seat_show_tmpfs(struct seat *seat, const char *destination, uint64_t bytes, struct err *err);

/* Lets go of what is attached; the directory stays, since the box has it mounted. */
void seat_release(struct seat *seat);

/* Removes the directory of a box that is gone. */
void seat_remove(const char *name);

/* Removes those whose name begins with `prefix` and that are older than a minute, unless `is_used` says otherwise. */
void seat_sweep(const char *prefix, bool (*is_used)(const char *name, void *context), void *context);
