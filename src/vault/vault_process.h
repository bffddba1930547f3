/* The vault's process. */
#pragma once

enum { VAULT_IDLE_MS = 60000 };

/* Turns a process that was forked for it into the vault: closes all other descriptors, serves, and never returns. The
 * socket at `path` listens already. The process exits after idle_ms without an entry and without a daemon. */
_Noreturn void vault_process_run(int listen_fd, const char *path, int idle_ms);
