/* The watchdog: a small process that cleans up after a glovebox that was killed. It waits for its creator to dismiss it
 * or to die, and in the second case ends the box and removes its control groups. */
#pragma once

#include "base/err.h"
#include "box/cgroup/cgroup.h"

struct cleanup_watchdog {
        pid_t pid;
        int fd;
};

/* Starts it before the control groups called `name` are made, and before `file` is (an absolute path, or NULL), which
 * it removes too. */
int cleanup_watchdog_start(const struct cgroup_host *host, const char *name, const char *file,
                           struct cleanup_watchdog *ret_watchdog, struct err *err);

/* Removes a file, and its directory if that is empty then. */
void cleanup_remove_file(const char *path);

/* Ends the watchdog after everything was cleaned up, and waits for its end. */
void cleanup_watchdog_dismiss(struct cleanup_watchdog *watchdog);
