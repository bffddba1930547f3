/* Declarations that the registry's source files share. */
#pragma once

#include <sqlite3.h>

#include "store/registry.h"

/* Of a row, in the order of struct registry_session's tables in registry.c; a checksum over all of them follows. */
#define REGISTRY_COLUMNS                                                                                               \
        "id, name, owner, image, mode, memory_bytes, cpu_thousandths, pids, timeout_ms, tmp_bytes, disk_bytes, "       \
        "disk_files, allow_weaker, workspace, options, created_ms, used_ms"

enum { REGISTRY_VERSION = 2, REGISTRY_APPLICATION = 0x476c7662 /* "Glvb" */, REGISTRY_BUSY_MS = 2000 };

enum registry_statement {
        REGISTRY_ADD,
        REGISTRY_REMOVE,
        REGISTRY_TOUCH,
        REGISTRY_LIMITS,
        REGISTRY_ENGINE,
        REGISTRY_NEXT, /* the first one after this time of creation and this id */
        REGISTRY_STATEMENTS
};

struct registry {
        int lock_fd;
        sqlite3 *db;
        sqlite3_stmt *statements[REGISTRY_STATEMENTS];
        int last_code; /* the result code of the last one that was run */
};

/* Fills err from SQLite's error. Returns -1. */
int registry_fail(sqlite3 *db, int code, const char *what, struct err *err);

/* Takes the lock of this directory. Returns its descriptor, or -1. */
int registry_lock(const char *dir, struct err *err);

/* True if this error of SQLite means that the file is damaged. */
bool registry_file_is_damage(int code);

/* Opens the database. *ret_damaged: it failed because the file is damaged. Closing it does not change the file until
 * SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE is reset. */
int registry_file_open(const char *path, sqlite3 **ret_db, bool *ret_damaged, struct err *err);

/* Whether each of its files is missing, or a plain file that can be read to its end. */
int registry_file_check(const char *path, struct err *err);

/* Makes a new, empty database where there is no file. */
int registry_file_make(const char *path, struct err *err);

/* Moves the database and its other files aside; ret_aside is their new path. */
int registry_file_quarantine(const char *path, char ret_aside[static 4200], struct err *err);
