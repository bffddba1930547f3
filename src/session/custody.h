/* Keeps copies of the descriptors of all kernels in the vault (vault/vault.h), and starts another vault if it exits.
 *
 * The daemon holds every descriptor that the vault holds. A vault that exits or does not answer is replaced, and the
 * new one gets the descriptors of all kernels. They are lost only if the daemon is killed within those milliseconds. */
#pragma once

#include "base/err.h"

struct session_manager;
struct session;

/* Connects to the vault at the start, or starts one. */
int custody_open(struct session_manager *manager, struct err *err);

/* Replaces a vault that has exited at once: for a daemon that is about to exit. */
void custody_make_sure(struct session_manager *manager);

/* Ends a vault that holds nothing: for a daemon that is about to exit. Else it would wait a minute for the next one. */
void custody_end_empty(struct session_manager *manager);

void custody_close(struct session_manager *manager);

/* The kernel of a session that outlives the daemon. */
void custody_put(struct session *session);
void custody_drop(struct session_manager *manager, const char *kernel_id);
