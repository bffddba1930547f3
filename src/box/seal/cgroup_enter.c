/* A process moves itself into the groups of a box. */
#include "base/fd.h"
#include "box/cgroup/cgroup.h"

int cgroup_enter(const struct cgroup *cgroup, struct err *err) {
        for (size_t c = 0; c < CGROUP_CONTROLLERS; c++) {
                /* "0" is the writing process, with the credentials of the process that opened the file. */
                int code = cgroup->tasks_fd[c] < 0 ? 0 : fd_write_all(cgroup->tasks_fd[c], "0", 1);
                if (code < 0)
                        return err_sys(err, -code, "cannot enter the control group %s", cgroup->name);
        }
        int code = cgroup->entry_fd < 0 ? 0 : fd_write_all(cgroup->entry_fd, "0", 1);
        return code < 0 ? err_sys(err, -code, "cannot enter the control group %s", cgroup->name) : 0;
}
