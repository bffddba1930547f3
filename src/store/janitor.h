/* The janitor: a process of the daemon's that removes directories, so that the daemon itself never waits for a disk. A
 * workspace may hold a million files.
 *
 * Theory of operation. The daemon forks it at its start and sends it one path after the other; it answers each with a
 * byte. What it has not answered is in the daemon's list still, and is sent again to the next janitor when one dies.
 * When the daemon dies, so does the janitor; what it left the next daemon finds, among the state of no session. */
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

/* Forks it, and others in its place when it dies. What it is given lives as long as the
 * daemon. */
int janitor_start(struct janitor *janitor, struct helper *helper, const char *data_dir, struct err *err);

/* Finishes what there is to do, within a bounded time: the rest is the next daemon's. Safe on { .fd = -1 }. */
void janitor_stop(struct janitor *janitor);

/* A directory with everything below it, soon. */
void janitor_remove(struct janitor *janitor, const char *path);

/* Only what is in it. */
void janitor_empty(struct janitor *janitor, const char *path);
