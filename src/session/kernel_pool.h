/* The pool: kernels that wait, sealed and ready, for an ephemeral run with default limits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct kernel;
struct registry_session;
struct session_manager;

void kernel_pool_refill(struct session_manager *manager);
void kernel_pool_refill_soon(
        struct session_manager *manager); /* one was taken: after a pause, so that its run goes first */
struct kernel *kernel_pool_take(struct session_manager *manager, const struct registry_session *row, bool light);
size_t kernel_pool_ready(const struct session_manager *manager, bool light);
size_t kernel_pool_wanted(const struct session_manager *manager, bool light);
void kernel_pool_empty(struct session_manager *manager);
