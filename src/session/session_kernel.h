/* Gives a session its kernel: from the pool, by an order to the maker, or from the vault after a crash. */
#pragma once

#include "kernel/kernel.h"
#include "session/session.h"

/* Receives the events of a session's kernel (session.c). */
extern const struct kernel_listener session_kernel_listener;

/* Gives the session a kernel, which may not be ready yet. If it gets none, its runs have failed. */
void session_order_kernel(struct session *session);

/* Ends the kernel on request: its variables do not count as lost, and the next run gets another one. */
void session_end_kernel(struct session *session);

/* Ends a kernel that broke the protocol: its further answers would be one run late. */
void session_break_off_kernel(struct session *session);
