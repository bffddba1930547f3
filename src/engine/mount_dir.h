/* The mount directory of a box: a private directory of the daemon that holds what an engine mounts into the box.
 *
 *   /run/glovebox-boxes/<name>/in/socket   the agent connects to it once; it is removed afterwards
 *   /run/glovebox-boxes/<name>/in/proxy    the proxy accepts on it if the box has a relay (guest/entry/relay.h)
 *   /run/glovebox-boxes/<name>/0, 1, …     sources of mounts, attached here until the engine has mounted them
 *   <data>/engine/agent, entry             our programs (many hosts mount /run with noexec)
 *
 * An engine takes paths, and a tenant could replace part of a path before the engine follows it. So the maker opens
 * each source as for a native box, with the same id mapping, and attaches it in this directory, where only root can
 * write. Once the box runs, the engine has its own mounts, and the maker detaches these.
 *
 * A daemon that is not root attaches nothing and gives the engine the paths themselves. A user's podman can do no more
 * with them than the user; a member of the group docker is as good as root anyway.
 *
 * The directory is not below the data directory: `rm -r` of that would delete the users' files that are attached
 * here. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "box/spec.h"
#include "engine/engine.h"

#define MOUNT_DIR_ROOT "/run/glovebox-boxes"

enum { MOUNT_DIR_MOUNTS_MAX = 64 };

/* Call once, before any other function. `daemon_is_user`: the daemon is not root. Then mount directories are below its
 * data directory, and nothing is attached there. */
void mount_dir_configure(const char *data_dir, bool daemon_is_user);

struct mount_dir {
        char path[512];
        int listen_fd;
        struct engine_mount mounts[MOUNT_DIR_MOUNTS_MAX];
        size_t n_mounts;
        char sources[MOUNT_DIR_MOUNTS_MAX][560];
        bool attached[MOUNT_DIR_MOUNTS_MAX];
};

/* Makes the directory and the socket, and adds our programs. The struct is large: allocate it on the heap. */
int mount_dir_open(const char *data_dir, const char *name, struct mount_dir *ret_dir, struct err *err);

/* Makes the proxy's listening socket in the directory. Returns the descriptor, or -1. */
int mount_dir_open_proxy(const struct mount_dir *dir, struct err *err);

/* Adds a mount; `mount` is borrowed. If the daemon is not root, tree_fd is the source directory itself. */
int mount_dir_add_tree(struct mount_dir *dir, const struct box_mount *mount, struct err *err);

/* Adds a path that only the daemon can change. */
int mount_dir_add_path(struct mount_dir *dir, const char *source, const char *destination, bool writable,
                       struct err *err);

/* Adds a tmpfs that the engine makes. */
int mount_dir_add_tmpfs(struct mount_dir *dir, const char *destination, uint64_t bytes, struct err *err);

/* Detaches all mounts and closes the socket; the directory stays, since the box has it mounted. */
void mount_dir_release(struct mount_dir *dir);

/* Removes the directory of a box that no longer exists. */
void mount_dir_remove(const char *name);

/* Removes directories whose name begins with `prefix`, unless they are younger than two minutes or `is_used` returns
 * true. */
void mount_dir_sweep(const char *prefix, bool (*is_used)(const char *name, void *context), void *context);
