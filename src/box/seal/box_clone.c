#include "box/seal/box_clone.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"

/* The seventh, for control groups, is made by the stage once it is in them. */
#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

void stage_fds_close(struct stage_fds *fds) {
        fd_close(&fds->sync_fd);
        fd_close(&fds->control_fd);
        fd_close(&fds->agent_fd);
        fd_close(&fds->listener_fd);
        fd_close(&fds->template_fd);
        for (size_t i = 0; i < ELEMENTS(fds->tree_fds); i++)
                fd_close(&fds->tree_fds[i]);
        for (size_t i = 0; i < ELEMENTS(fds->device_fds); i++)
                fd_close(&fds->device_fds[i]);
}

static int write_id_map(pid_t pid, const char *file, unsigned inside, unsigned outside, unsigned count) {
        char path[64], line[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        int length = snprintf(line, sizeof(line), "%u %u %u", inside, outside, count);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, line, (size_t) length);
}

static int deny_setgroups(pid_t pid) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/setgroups", (int) pid);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, "deny", 4);
}

/* In a namespace where groups may not be set (rootless), they may not be set in the box either. The kernel's answer no
 * longer changes once the groups of the namespace are mapped, before any box is made in it. */
static bool may_set_groups(void) {
        static char text[8];
        if (text[0])
                return strncmp(text, "allow", 5) == 0;
        _cleanup_fd_ int fd = open("/proc/self/setgroups", O_RDONLY | O_CLOEXEC);
        return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strncmp(text, "allow", 5) == 0;
}

/* The parent's half of the sealing: ids. A failed operation on a dead child is only a consequence: the child reports
 * the cause. */
static int map_ids(const struct box_spec *spec, pid_t pid, bool drop_groups, struct err *err) {
        int code = drop_groups ? 0 : deny_setgroups(pid);
        unsigned below = spec->users ? BOX_UID : 0, count = spec->users ? BOX_IDS : 1;
        if (code == 0)
                code = write_id_map(pid, "gid_map", BOX_GID - below, spec->host_gid - below, count);
        if (code == 0)
                code = write_id_map(pid, "uid_map", BOX_UID - below, spec->host_uid - below, count);
        return code < 0 ? err_sys(err, -code, "mapping the box's user id") : 0;
}

int box_clone(struct box_birth *birth, bool into_group, struct err *err) {
        struct box *box = &birth->box;
        struct stage stage = { .spec = birth->spec,
                               .fds = &birth->fds,
                               .cgroup = &box->cgroup,
                               .drop_groups = may_set_groups(),
                               .has_memory_cgroup = birth->has_memory_cgroup,
                               .has_pids_cgroup = birth->has_pids_cgroup,
                               .root_fd = -1,
                               .mount_bound_fd = -1,
                               .self_fd = -1 };
        struct clone_args args = { .flags = NAMESPACES | CLONE_PIDFD,
                                   .exit_signal = SIGCHLD,
                                   .pidfd = (uint64_t) (uintptr_t) &box->pidfd };
        if (birth->spec->given_network)
                args.flags &= ~(uint64_t) CLONE_NEWNET;
        if (into_group && box->cgroup.v2_fd >= 0) {
                args.flags |= CLONE_INTO_CGROUP;
                args.cgroup = (uint32_t) box->cgroup.v2_fd;
        }
        box->pid = sys_clone3(&args);
        if (box->pid == 0) {
                fd_close(&birth->sync_fd);
                fd_close(&birth->listener_fd);
                stage_run(&stage);
        }
        if (box->pid < 0)
                return err_sys(err, errno, "making the namespaces of a box; see `glovebox doctor`");
        stage_fds_close(&birth->fds);
        return map_ids(birth->spec, box->pid, stage.drop_groups, err);
}
