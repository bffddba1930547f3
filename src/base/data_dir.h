/* The data directory of Glovebox, and the directories of its sockets. */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum { DATA_DIR_PATH_MAX = 4096 };

/* The data directory, absolute and resolved: $GLOVEBOX_DATA_DIR, $SANDBOX_DATA_DIR, /var/lib/glovebox for root, else
 * $XDG_DATA_HOME/glovebox or ~/.local/share/glovebox. It is created (0700) if it is missing. ERR_REFUSED if it belongs
 * to another user, or others may write to it. Call this before entering a user namespace: in there every user is
 * root. */
int data_dir_open(char ret_path[static DATA_DIR_PATH_MAX], struct err *err);

/* Marks it (base/private_dir.h). Call it before anything is stored there. */
int data_dir_mark(const char *path, struct err *err);

/* As data_dir_open, without creating anything: ERR_NOT_FOUND if the directory does not exist. */
int data_dir_find(char ret_path[static DATA_DIR_PATH_MAX], struct err *err);

/* A second data directory of this user, in which images are looked up that the first one lacks: the default one, or the
 * one that $GLOVEBOX_SHARED_DATA_DIR names ("none": none). "" if there is none, if it is the data directory itself, if
 * it belongs to another user, or if others may write to it. Determined when data_dir_open or data_dir_find is
 * called. */
const char *data_dir_shared(void);

/* The directories for sockets: temporary and of this user alone, best one first. Returns their number. */
enum { RUNTIME_DIRS = 3, RUNTIME_MAX = 72 };
size_t runtime_dirs(char ret_paths[static RUNTIME_DIRS][RUNTIME_MAX]);

/* Makes one of them (0700) and marks it (base/private_dir.h); ERR_REFUSED if another user owns it. */
int runtime_dir_make(const char *path, struct err *err);
