/* Where Glovebox keeps what it owns. */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum { DATA_DIR_PATH_MAX = 4096 };

/* The data directory, absolute and resolved: $GLOVEBOX_DATA_DIR, $SANDBOX_DATA_DIR, /var/lib/glovebox for root, else
 * $XDG_DATA_HOME/glovebox or ~/.local/share/glovebox. It is made (0700) when missing; one that belongs to another user,
 * or that others may write to, is refused. Call this before entering a user namespace: in there every user is root. */
int data_dir_open(char ret_path[static DATA_DIR_PATH_MAX], struct err *err);

/* Marks it (base/private_dir.h). Call it before anything is stored there. */
int data_dir_mark(const char *path, struct err *err);

/* As data_dir_open, without creating anything: ERR_NOT_FOUND if the directory does not exist. */
int data_dir_find(char ret_path[static DATA_DIR_PATH_MAX], struct err *err);

/* Another data directory of this user's, whose images count where the own one lacks them: the usual one, or the one
 * that $GLOVEBOX_SHARED_DATA_DIR names ("none": none). "" when there is none, or it is the data directory itself,
 * belongs to another user, or may be written to by others. As it was when one of the two above was called. */
const char *data_dir_shared(void);

/* Where sockets are: short-lived directories that are this user's alone, best one first. Returns how many there are. */
enum { RUNTIME_DIRS = 3, RUNTIME_MAX = 72 };
size_t runtime_dirs(char ret_paths[static RUNTIME_DIRS][RUNTIME_MAX]);

/* Makes one of them (0700) and marks it (base/private_dir.h); ERR_REFUSED if another user owns it. */
int runtime_dir_make(const char *path, struct err *err);
