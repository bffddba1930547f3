/* The vault: a small process that outlives the daemon and holds the descriptors of running boxes, so that `kill -9` of
 * the daemon ends none of them. It stores names, a few bytes and descriptors, and does not interpret them.
 *
 * It listens on a UNIX socket in the daemon's data directory and serves one daemon at a time, which must have the same
 * uid. It keeps all entries when the daemon disconnects, and never removes one by itself. It ends on request, or after a
 * minute without a daemon if it has no entry or its socket was removed. Entries whose name starts with "." are stored
 * like others, but do not count: a vault with no other entries is empty. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

enum { VAULT_FDS_MAX = 12, VAULT_NOTE_MAX = 4096, VAULT_NAME_MAX = 64 };

struct vault {
        int fd;
        pid_t pid; /* of the vault process; 0: unknown (an older version) */
};

/* Connects to the vault at `path` (absolute). If there is none, starts one by a double fork; the new process keeps none
 * of the daemon's descriptors, and *ret_new is true. ERR_BUSY: another daemon is connected to the vault. The call holds
 * a lock on <path>.lock. The connection ends only when all copies of the socket are closed, so a forked process that
 * outlives the caller must close its copy. */
int vault_open(const char *path, struct vault *ret_vault, bool *ret_new, struct err *err);
void vault_close(struct vault *vault);

/* Stores copies of the descriptors, which are borrowed. Replaces an entry of the same name. ERR_LIMIT: the vault is
 * near its limit of open files. ERR_GONE, here and below: the vault has ended. */
int vault_put(struct vault *vault, const char *name, const void *note, size_t note_size, const int *fds, size_t n_fds,
              struct err *err);
int vault_drop(struct vault *vault, const char *name, struct err *err);

/* Calls `each` for every entry, in the order of their first vault_put. `each` owns the descriptors and may call
 * vault_put and vault_drop. */
int vault_each(struct vault *vault,
               void (*each)(const char *name, const void *note, size_t note_size, int *fds, size_t n_fds,
                            void *context),
               void *context, struct err *err);

/* True if a vault is alive at `path`. It starts none. */
bool vault_is_running(const char *path);

/* Ends the vault process, and with it every box whose last descriptors it held. When this returns, the process has
 * ended and the connection is closed. */
int vault_end(struct vault *vault, struct err *err);
