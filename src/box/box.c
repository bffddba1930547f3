#include "box/box.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/agent_image.h"
#include "box/seal/box_clone.h"
#include "box/seal/stage.h"
#include "box/seal/tree.h"

enum { SEAL_WAIT_MS = 60000, KILL_WAIT_MS = 5000 };

int stage_fds_open_view(const struct box_spec *spec, struct stage_fds *ret_fds, struct err *err) {
        memset(ret_fds, 0xff, sizeof(*ret_fds)); /* every descriptor -1 */
        if (spec->from_template)
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

/* Reads the child's report: 0 when it became the agent, or -1 with its error. */
static int read_verdict(int sync_fd, struct err *err) {
        struct err reported;
        struct pollfd watched = { .fd = sync_fd, .events = POLLIN };
        int n;
        while ((n = poll(&watched, 1, SEAL_WAIT_MS)) < 0 && errno == EINTR)
                ;
        if (n == 0) /* a mount may hang, and other boxes must not wait for this one */
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

/* A failed operation on a dead child is only a consequence: the child has reported the cause. */
static int prefer_verdict(int sync_fd, struct err *err) {
        struct pollfd watched = { .fd = sync_fd, .events = POLLIN };
        if (poll(&watched, 1, 0) == 1)
                (void) read_verdict(sync_fd, err);
        return -1;
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
                                   .box = { .pidfd = -1,
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
            (spec->ret_listener_fd && make_pair(SOCK_SEQPACKET, &birth.listener_fd, &birth.fds.listener_fd, err) < 0))
                goto undo;
        fd_passing_refuse(box->control_fd); /* the agent is ours, and sends none */
        if ((spec->kept && cleanup_watchdog_start(host, spec->name, spec->kept_file, &box->watchdog, err) < 0) ||
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

int box_proceed(struct box_birth *birth, struct err *err) {
        if (send(birth->sync_fd, "i", 1, MSG_NOSIGNAL) == 1 || errno == EPIPE || errno == ECONNRESET)
                return 0; /* a dead child has written its report already */
        return err_sys(err, errno, "telling the box to seal itself");
}

int box_settle(struct box_birth *birth, struct box *ret_box, struct err *err) {
        if (read_verdict(birth->sync_fd, err) < 0)
                return -1;
        char letter;
        if (birth->listener_fd >= 0 &&
            fd_passing_receive(birth->listener_fd, &letter, 1, birth->spec->ret_listener_fd, 1, MSG_DONTWAIT) != 1)
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
                return err_set(err, ERR_TIMEOUT, "the box does not end: one of its processes hangs in the kernel");
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
                cleanup_watchdog_dismiss(&box->watchdog);
        return code;
}
