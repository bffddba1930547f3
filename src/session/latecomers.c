#include "session/latecomers.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "session/ward.h"

void latecomers_note(struct latecomers *latecomers, const struct cgroup *cgroup, int agent_fd, int kernel_fd) {
        if (cgroup->host->kind != CGROUP_HYBRID || cgroup->v2_fd < 0)
                return;
        latecomers->procs_fd = openat(cgroup->v2_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        latecomers->pidfds[0] = fcntl(agent_fd, F_DUPFD_CLOEXEC, 3);
        latecomers->pidfds[1] = kernel_fd < 0 ? -1 : fcntl(kernel_fd, F_DUPFD_CLOEXEC, 3);
}

void latecomers_admit(struct latecomers *latecomers) {
        for (size_t i = 0; i < ELEMENTS(latecomers->pidfds); i++) {
                /* -1 for one that is gone. A number is not given to another process within the time of one write: numbers
                 * go round. */
                pid_t pid = latecomers->pidfds[i] < 0 ? -1 : ward_pid_of(latecomers->pidfds[i]);
                if (latecomers->procs_fd >= 0 && pid > 0)
                        (void) dprintf(latecomers->procs_fd, "%d", (int) pid);
                fd_close(&latecomers->pidfds[i]);
        }
        fd_close(&latecomers->procs_fd);
}
