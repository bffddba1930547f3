/* Keeps copies of the descriptors of all kernels in the vault (vault/vault.h), and starts another vault if it exits.
 *
 * The daemon holds every descriptor that the vault holds. A vault that exits or does not answer is replaced, and the
 * new one gets the descriptors of all kernels. They are lost only if the daemon is killed within those milliseconds. */
#pragma once

#include "base/err.h"

struct session_manager;
struct session;

/* Connects to the vault at the start, or starts one. */
int vault_link_open(struct session_manager *manager, struct err *err);

/* Replaces a vault that has exited at once: for a daemon that is about to exit. */
void vault_link_make_sure(struct session_manager *manager);

/* Ends a vault that holds nothing: for a daemon that is about to exit. Else it would wait a minute for the next one. */
void vault_link_end_empty(struct session_manager *manager);

void vault_link_close(struct session_manager *manager);

/* The kernel of a session that outlives the daemon. */
void vault_link_put(struct session *session);
void vault_link_drop(struct session_manager *manager, const char *kernel_id);
