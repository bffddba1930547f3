/* The pool: kernels that wait, sealed and ready, for an ephemeral run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct kernel;
struct limits;
struct registry_session;
struct session_manager;

void kernel_pool_refill(struct session_manager *manager);

/* One was taken: after a pause, or when its run has ended, so that the run goes first. */
void kernel_pool_refill_soon(struct session_manager *manager);
void kernel_pool_run_ended(struct session_manager *manager);

struct kernel *kernel_pool_take(struct session_manager *manager, const struct registry_session *row, bool light);

/* True if the box of a kernel that was taken needs more mounts. */
bool kernel_pool_has_to_show(const struct registry_session *row);

/* Gives the box of a kernel that was taken the limits of its run. After a failure it is of no use. */
int kernel_pool_limit(const struct session_manager *manager, const struct kernel *kernel, const struct limits *limits,
                      struct err *err);
size_t kernel_pool_ready(const struct session_manager *manager, bool light);
size_t kernel_pool_wanted(const struct session_manager *manager, bool light);
void kernel_pool_empty(struct session_manager *manager);
