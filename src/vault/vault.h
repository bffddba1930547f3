/* The vault: a small process that outlives the daemon and holds the descriptors of living boxes, so that `kill -9` of
 * the daemon ends none of them. It stores names, a few bytes and descriptors, and does not interpret them.
 *
 * It listens on a UNIX socket in the daemon's private runtime directory, serves one daemon at a time (same uid,
 * checked), keeps everything when that one disconnects, and ends on request, or when it has been empty and alone for a
 * minute. It drops nothing by itself. Entries whose name starts with "." are held too, but do not count: with no others
 * the vault is empty. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

enum { VAULT_FDS_MAX = 12, VAULT_NOTE_MAX = 4096, VAULT_NAME_MAX = 64 };

struct vault {
        int fd;
        pid_t pid; /* of its process; 0: unknown (an older version) */
};

/* Connects to the vault at `path` (absolute), starting one when there is none (double fork; the new process keeps none
 * of the daemon's descriptors). *ret_new: it was just started. ERR_BUSY while another daemon is connected to it. Beside
 * it lies <path>.lock, held while a vault is being found or started. A connection belongs to the open socket: a process
 * that is forked off and lives on must close its copy. */
int vault_open(const char *path, struct vault *ret_vault, bool *ret_new, struct err *err);
void vault_close(struct vault *vault);

/* Descriptors are borrowed; the vault holds copies. An entry of the same name is replaced. ERR_LIMIT when the vault's
 * own limit of open files is near. ERR_GONE, from all of these: the vault has ended. */
int vault_put(struct vault *vault, const char *name, const void *note, size_t note_size, const int *fds, size_t n_fds,
              struct err *err);
int vault_drop(struct vault *vault, const char *name, struct err *err);

/* Everything it holds, one call for each, in the order of their first vault_put; the callee owns the descriptors, and
 * may put and drop. */
int vault_each(struct vault *vault,
               void (*each)(const char *name, const void *note, size_t note_size, int *fds, size_t n_fds,
                            void *context),
               void *context, struct err *err);

/* True if a vault is alive at `path`. It starts none. */
bool vault_is_running(const char *path);

/* Ends the process and with it every box whose last descriptors it held. It is gone when this returns, and the
 * connection is closed. */
int vault_end(struct vault *vault, struct err *err);
