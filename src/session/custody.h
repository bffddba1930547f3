/* Keeps the descriptors of living kernels in the vault (vault/vault.h), and starts another vault if that one dies.
 *
 * The daemon holds every descriptor that the vault holds. A vault that dies or does not answer is replaced, and the new
 * one gets the descriptors of all living kernels. They are lost only if the daemon dies within those milliseconds. */
#pragma once

#include "base/err.h"

struct session_manager;
struct session;

/* Connects to the vault at the start, or starts one. */
int custody_open(struct session_manager *manager, struct err *err);

/* Replaces a vault that has died at once, for a daemon that is ending. */
void custody_make_sure(struct session_manager *manager);

void custody_close(struct session_manager *manager);

/* The kernel of a session that is kept. */
void custody_put(struct session *session);
void custody_drop(struct session_manager *manager, const char *kernel_id);
