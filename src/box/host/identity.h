/* The user ids of boxes on the host. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Makes this process able to make boxes: a caller without CAP_SYS_ADMIN enters a user namespace of its own, in which it
 * is root and runs the same code. If that is not allowed, the error describes how to fix the host. Call once, before
 * anything is opened and while single-threaded. *ret_rootless: which of the two it is. */
int identity_enter(bool *ret_rootless, struct err *err);

/* True if this process has CAP_SYS_ADMIN in its user namespace. */
bool identity_has_sys_admin(void);

/* A host uid (and gid) that no other box of this machine uses: a lease on one byte of a lock file, held as long as
 * *ret_lease_fd is open. Where only our own id is mapped (rootless), that id, and *ret_lease_fd is -1. */
int identity_lease(uid_t *ret_uid, gid_t *ret_gid, int *ret_lease_fd, struct err *err);

/* The same for a box with users (spec.h): *ret_uid is the host id of BOX_UID, and the ids around it are the box's.
 * ERR_UNSUPPORTED, with the reason, if the host has no such ids. */
int identity_lease_users(uid_t *ret_uid, gid_t *ret_gid, int *ret_lease_fd, struct err *err);
int identity_check_users(struct err *err);

/* Of those boxes: BOX_IDS ids each, while it lives. Files that their users leave in a workspace belong on disk to
 * IDENTITY_DISK_UID + their id in the box, which no process has: a session's next box has other ids. */
enum { IDENTITY_USERS_UID = 0x71000000, IDENTITY_USERS_COUNT = 2048, IDENTITY_DISK_UID = 0x7a000000 };

/* Host ids of boxes. The first one is never leased: supervisors and nurseries run as it. */
enum { IDENTITY_FIRST_UID = 0x70000000, IDENTITY_COUNT = 0x10000 };

/* True if boxes can have host ids of their own. In a rootless user namespace and in many containers they cannot. */
bool identity_has_range(void);

/* The user id of the caller: the same, unless identity_enter() made a user namespace. */
uid_t identity_outside(uid_t uid);
