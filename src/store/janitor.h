/* The janitor: a process of the daemon's that removes directories, so that the daemon itself never waits for a disk. A
 * workspace may hold a million files.
 *
 * Theory of operation. The daemon forks it at its start and sends it one path after the other; it answers each with a
 * byte. Unanswered paths stay in the daemon's list, and are sent to the next janitor if one dies. The janitor dies with
 * the daemon; the next daemon finds the remaining directories, because they belong to no session. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/helper.h"
#include "base/loop.h"

struct chore;

struct janitor {
        struct helper *helper;
        const char *data_dir;
        pid_t pid;
        int fd;
        struct loop_watch *watch;
        struct chore *chores, *newest; /* oldest first */
        size_t n_sent;        /* of them, how many were sent to it */
        unsigned n_deaths;    /* over the oldest */
};

/* Starts it, and restarts it when it exits. The arguments must stay valid until janitor_stop. */
int janitor_start(struct janitor *janitor, struct helper *helper, const char *data_dir, struct err *err);

/* Waits for the remaining work, for a bounded time; the next daemon does the rest. Safe on { .fd = -1 }. */
void janitor_stop(struct janitor *janitor);

/* Removes a directory with everything below it, soon. */
void janitor_remove(struct janitor *janitor, const char *path);

/* Removes only its contents. */
void janitor_empty(struct janitor *janitor, const char *path);
