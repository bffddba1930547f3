/* The vault's process. */
#pragma once

enum { VAULT_IDLE_MS = 60000 };

/* Becomes the vault, in a process that was forked for it: closes everything else, serves, never returns. The socket
 * listens at `path` already. It ends after idle_ms without an entry and without a daemon. */
_Noreturn void vault_process_run(int listen_fd, const char *path, int idle_ms);
