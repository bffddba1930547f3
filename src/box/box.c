#include "box/box.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/passing.h"
#include "box/agent_image.h"
#include "box/stage.h"
#include "box/syscalls.h"
#include "box/tree.h"

enum { SEAL_WAIT_MS = 60000, KILL_WAIT_MS = 5000 };

/* The seventh, for control groups, is made by the stage once it is in them. */
#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

void stage_fds_close(struct stage_fds *fds) {
        fd_close(&fds->sync_fd);
        fd_close(&fds->control_fd);
        fd_close(&fds->agent_fd);
        fd_close(&fds->listener_fd);
        fd_close(&fds->mould_fd);
        for (size_t i = 0; i < ELEMENTS(fds->tree_fds); i++)
                fd_close(&fds->tree_fds[i]);
        for (size_t i = 0; i < ELEMENTS(fds->device_fds); i++)
                fd_close(&fds->device_fds[i]);
}

int stage_fds_open_view(const struct box_spec *spec, struct stage_fds *ret_fds, struct err *err) {
        memset(ret_fds, 0xff, sizeof(*ret_fds)); /* every descriptor -1 */
        if (spec->from_mould)
                return 0;
        for (size_t i = 0; i < spec->image->n_trees; i++) {
                ret_fds->tree_fds[i] = tree_clone(spec->image->trees[i].fd, false);
                if (ret_fds->tree_fds[i] < 0)
                        return err_sys(err, -ret_fds->tree_fds[i], "opening %s of image %s", spec->image->trees[i].path,
                                       spec->image->name);
        }
        for (size_t i = 0; i < STAGE_DEVICES; i++) {
                const struct stage_device *device = &stage_devices[i];
                ret_fds->device_fds[i] = tree_clone_device(device->path, device->major_number, device->minor_number);
                if (ret_fds->device_fds[i] < 0)
                        return err_sys(err, -ret_fds->device_fds[i], "opening %s", device->path);
        }
        return 0;
}

static int make_pair(int type, int *ret_ours, int *ret_theirs, struct err *err) {
        int ends[2];
        if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        *ret_ours = ends[0];
        *ret_theirs = ends[1];
        return 0;
}

static int write_id_map(pid_t pid, const char *file, unsigned inside, unsigned outside) {
        char path[64], line[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        int length = snprintf(line, sizeof(line), "%u %u 1", inside, outside);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, line, (size_t) length);
}

static int deny_setgroups(pid_t pid) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/setgroups", (int) pid);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, "deny", 4);
}

/* In a namespace where groups may not be set (rootless), they may not be set in the box either. What the kernel says
 * stays so once the groups of the namespace are mapped, which they are before anybody makes boxes in it. */
static bool may_set_groups(void) {
        static char text[8];
        if (text[0])
                return strncmp(text, "allow", 5) == 0;
        _cleanup_fd_ int fd = open("/proc/self/setgroups", O_RDONLY | O_CLOEXEC);
        return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strncmp(text, "allow", 5) == 0;
}

/* What the child says: 0 when it became the agent, -1 with its own reason. */
static int read_verdict(int sync_fd, struct err *err) {
        struct err reported;
        struct pollfd watched = { .fd = sync_fd, .events = POLLIN };
        int n;
        while ((n = poll(&watched, 1, SEAL_WAIT_MS)) < 0 && errno == EINTR)
                ;
        if (n == 0) /* a mount that hangs, perhaps: whoever waits for other boxes must not wait for this one */
                return err_set(err, ERR_TIMEOUT, "the box was not sealed within %d s: see whether a file system hangs",
                               SEAL_WAIT_MS / 1000);
        int code = fd_read_exactly(sync_fd, &reported, sizeof(reported));
        if (code == -ENODATA)
                return 0; /* closed by the exec of the agent */
        if (code < 0)
                return err_sys(err, -code, "waiting for the box to be sealed");
        reported.message[sizeof(reported.message) - 1] = '\0';
        *err = reported;
        return -1;
}

/* What we could not do to a child that is gone is only a consequence: it has told why it went. */
static int prefer_verdict(int sync_fd, struct err *err) {
        struct pollfd watched = { .fd = sync_fd, .events = POLLIN };
        if (poll(&watched, 1, 0) == 1)
                (void) read_verdict(sync_fd, err);
        return -1;
}

/* The parent's half of the sealing: ids. What we could not do to a child that is gone is only a consequence. */
static int map_ids(const struct box_spec *spec, pid_t pid, bool drop_groups, struct err *err) {
        int code = drop_groups ? 0 : deny_setgroups(pid);
        if (code == 0)
                code = write_id_map(pid, "gid_map", BOX_GID, spec->host_gid);
        if (code == 0)
                code = write_id_map(pid, "uid_map", BOX_UID, spec->host_uid);
        return code < 0 ? err_sys(err, -code, "mapping the box's user id") : 0;
}

/* The agent's program, sealed: one copy for all boxes of this process. */
static int open_agent(void) {
        static int sealed_fd = -1;
        if (sealed_fd < 0)
                sealed_fd = fd_sealed_copy("agent", agent_image, agent_image_size());
        if (sealed_fd < 0)
                return sealed_fd;
        int fd = fcntl(sealed_fd, F_DUPFD_CLOEXEC, 3);
        return fd < 0 ? -errno : fd;
}

int box_prepare(const struct box_spec *spec, const struct cgroup_host *host, struct box_birth *ret_birth,
                struct err *err) {
        struct box_birth birth = { .spec = spec,
                                   .sync_fd = -1,
                                   .listener_fd = -1,
                                   .box = {
                                           .pidfd = -1,
                                           .control_fd = -1,
                                           .cgroup = { .v2_fd = -1, .tasks_fd = { -1, -1, -1 }, .entry_fd = -1 } } };
        struct box *box = &birth.box;
        if (stage_fds_open_view(spec, &birth.fds, err) < 0)
                goto undo;
        birth.fds.agent_fd = open_agent();
        if (birth.fds.agent_fd < 0) {
                (void) err_sys(err, -birth.fds.agent_fd, "preparing the agent");
                goto undo;
        }
        if (make_pair(SOCK_STREAM, &birth.sync_fd, &birth.fds.sync_fd, err) < 0 ||
            make_pair(SOCK_STREAM, &box->control_fd, &birth.fds.control_fd, err) < 0 ||
            (spec->ret_listener_fd &&
             make_pair(SOCK_SEQPACKET, &birth.listener_fd, &birth.fds.listener_fd, err) < 0))
                goto undo;
        if ((spec->kept && keeper_start(host, spec->name, &box->keeper, err) < 0) ||
            cgroup_create(host, spec->name, &spec->limits, spec->allow_weaker, &box->cgroup, err) < 0)
                goto undo;
        birth.has_memory_cgroup = host->usable[CGROUP_MEMORY];
        birth.has_pids_cgroup = host->usable[CGROUP_PIDS];
        *ret_birth = birth;
        return 0;
undo:
        box_abandon(&birth);
        return -1;
}

int box_clone(struct box_birth *birth, bool into_group, struct err *err) {
        struct box *box = &birth->box;
        struct stage stage = { .spec = birth->spec, .fds = &birth->fds, .cgroup = &box->cgroup,
                               .drop_groups = may_set_groups(), .has_memory_cgroup = birth->has_memory_cgroup,
                               .has_pids_cgroup = birth->has_pids_cgroup, .root_fd = -1, .mount_bound_fd = -1 };
        struct clone_args args = { .flags = NAMESPACES | CLONE_PIDFD, .exit_signal = SIGCHLD,
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

int box_proceed(struct box_birth *birth, struct err *err) {
        if (send(birth->sync_fd, "i", 1, MSG_NOSIGNAL) == 1 || errno == EPIPE || errno == ECONNRESET)
                return 0; /* a child that is gone already has left its verdict */
        return err_sys(err, errno, "telling the box to seal itself");
}

int box_settle(struct box_birth *birth, struct box *ret_box, struct err *err) {
        if (read_verdict(birth->sync_fd, err) < 0)
                return -1;
        char letter;
        if (birth->listener_fd >= 0 &&
            passing_receive(birth->listener_fd, &letter, 1, birth->spec->ret_listener_fd, 1, MSG_DONTWAIT) != 1)
                return err_set(err, ERR_SYSTEM, "the box did not hand out the socket of its proxy");
        fd_close(&birth->listener_fd);
        fd_close(&birth->sync_fd);
        *ret_box = birth->box;
        birth->box = (struct box) { .pidfd = -1, .control_fd = -1 };
        return 0;
}

void box_abandon(struct box_birth *birth) {
        stage_fds_close(&birth->fds);
        fd_close(&birth->sync_fd);
        fd_close(&birth->listener_fd);
        (void) box_end(&birth->box, NULL, NULL);
}

int box_start(const struct box_spec *spec, const struct cgroup_host *host, struct box *ret_box, struct err *err) {
        struct box_birth birth;
        if (box_prepare(spec, host, &birth, err) < 0)
                return -1;
        int code = box_clone(&birth, true, err);
        if (code < 0)
                code = prefer_verdict(birth.sync_fd, err);
        if (code == 0)
                code = box_proceed(&birth, err);
        if (code == 0)
                code = box_settle(&birth, ret_box, err);
        if (code < 0)
                box_abandon(&birth);
        return code;
}

int box_kill(struct box *box, struct err *err) {
        if (box->pid <= 0)
                return 0;
        /* Killing PID 1 of a pid namespace kills everything in it; the pidfd is readable when all of them are gone. */
        (void) sys_pidfd_send_signal(box->pidfd, SIGKILL);
        struct pollfd watched = { .fd = box->pidfd, .events = POLLIN };
        while (poll(&watched, 1, KILL_WAIT_MS) < 0 && errno == EINTR)
                ;
        if (!watched.revents)
                return err_set(err, ERR_TIMEOUT, "the box does not die: a process hangs in the kernel");
        return 0;
}

int box_end(struct box *box, struct cgroup_usage *ret_usage, struct err *err) {
        fd_close(&box->control_fd);
        int code = box_kill(box, err);
        if (box->pid > 0 && code == 0)
                (void) waitpid(box->pid, NULL, 0);
        box->pid = 0;
        fd_close(&box->pidfd);
        if (ret_usage && box->cgroup.host)
                cgroup_read_usage(&box->cgroup, ret_usage);
        if (box->cgroup.host && cgroup_destroy(&box->cgroup, code < 0 ? NULL : err) < 0)
                code = -1;
        if (code == 0)
                keeper_dismiss(&box->keeper);
        return code;
}
