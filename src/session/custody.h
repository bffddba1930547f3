/* The descriptors of living kernels in the vault's keeping (vault/vault.h), and another vault when that one dies.
 *
 * The daemon holds every descriptor that the vault holds. So a vault that dies, or that does not answer, is replaced:
 * the new one gets the descriptors of all living kernels, and nothing is lost unless the daemon dies in the
 * milliseconds in between. */
#pragma once

#include "base/err.h"

struct session_manager;
struct session;

/* Connects to the vault at the start, or starts one. */
int custody_open(struct session_manager *manager, struct err *err);

/* Replaces a vault that has died, now: the daemon would not come back to it at its end. */
void custody_make_sure(struct session_manager *manager);

void custody_close(struct session_manager *manager);

/* The kernel of a session that is kept. */
void custody_put(struct session *session);
void custody_drop(struct session_manager *manager, const char *kernel_id);
