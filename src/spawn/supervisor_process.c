/* The supervisor itself: PID 1 of its pid namespace, a program of its own. supervisor.h describes it. Every box begins
 * as a copy of this process, so it keeps little memory. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "base/signals.h"
#include "base/syscalls.h"
#include "box/seal/box_clone.h"
#include "box/seal/nursery_stage.h"
#include "box/seal/privilege.h"
#include "box/seal/rootfs_template.h"
#include "box/seal/tree.h"
#include "spawn/supervisor_message.h"
#include "spawn/supervisor_network.h"

enum {
        WATCHED_MAX = 4096,
        /* Far from 2, which is every kernel's pid in its box: libraries detect a fork by a changed pid. */
        NURSERY_FIRST_PID = 20000,
        NURSERY_PIDS = 8000,
};

static struct {
        pid_t pid;
        int status_fd;
} watched[WATCHED_MAX];
static size_t n_watched;

static pid_t nursery_pids[2]; /* full and light */
static int nursery_count;

/* ---- coming to life ---- */

/* A root with nothing in it but what cloning a box takes: /proc for the id maps, /tmp to build on. Later the
 * template. */
static int supervisor_process_make_root(void) {
        _cleanup_fd_ int tree = tree_make_tmpfs(1 << 20, 64, BOX_UID, BOX_GID, 0755);
        if (tree < 0)
                return tree;
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            sys_move_mount(tree, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) < 0 || chdir("/tmp") < 0 ||
            mkdir("proc", 0555) < 0 || mkdir("tmp", 0755) < 0 ||
            mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 || sys_pivot_root(".", ".") < 0 ||
            umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
                return -errno;
        return 0;
}

/* ---- requests ---- */

/* False if it could not be sent. */
static bool supervisor_process_answer(int fd, int code, const struct err *err, int pidfd) {
        struct supervisor_answer reply = { .code = code };
        if (code < 0)
                reply.err = *err;
        return fd_passing_send(fd, &reply, sizeof(reply), &pidfd, 1, 0) == 0;
}

static void take_view(const int slots[static SUPERVISOR_SLOTS], struct stage_fds *ret_fds) {
        memcpy(ret_fds->tree_fds, &slots[SUPERVISOR_TREES], sizeof(ret_fds->tree_fds));
        memcpy(ret_fds->device_fds, &slots[SUPERVISOR_DEVICES], sizeof(ret_fds->device_fds));
}

static int make_template(const struct supervisor_request *request, int slots[static SUPERVISOR_SLOTS],
                         struct err *err) {
        const struct box_spec spec = { .image = &request->image, .limits = request->limits };
        struct stage_fds fds = {
                .sync_fd = -1, .control_fd = -1, .agent_fd = -1, .listener_fd = -1, .template_fd = -1
        };
        take_view(slots, &fds);
        return rootfs_template_make(&spec, &fds, err);
}

/* Plain runs, of which there are many. A box with a proxy makes its own network. */
static bool takes_ready_network(const struct supervisor_request *request, const int slots[static SUPERVISOR_SLOTS]) {
        return (request->makes_template || request->from_template) && slots[SUPERVISOR_LISTENER] < 0;
}

static int clone_box(const struct supervisor_request *request, int slots[static SUPERVISOR_SLOTS], int *ret_pidfd,
                     struct err *err) {
        if (request->makes_template && make_template(request, slots, err) < 0)
                return -1;
        struct box_mount mounts[SUPERVISOR_MOUNTS_MAX];
        for (size_t i = 0; i < request->n_mounts; i++)
                mounts[i] = (struct box_mount) { slots[SUPERVISOR_MOUNTS + i], request->mounts[i].is_directory,
                                                 request->mounts[i].writable, request->mounts[i].destination };
        const struct box_spec spec = { .image = &request->image,
                                       .limits = request->limits,
                                       .from_template = request->makes_template || request->from_template,
                                       .given_network =
                                               takes_ready_network(request, slots) && supervisor_network_enter(),
                                       .host_uid = request->uid,
                                       .host_gid = request->gid,
                                       .workspace_fd = slots[SUPERVISOR_WORKSPACE],
                                       .mounts = mounts,
                                       .n_mounts = request->n_mounts };
        struct box_birth birth = {
                .spec = &spec,
                .sync_fd = -1,
                .listener_fd = -1,
                .has_memory_cgroup = request->has_memory_cgroup,
                .has_pids_cgroup = request->has_pids_cgroup,
                .box = { .pidfd = -1, .control_fd = -1, .cgroup = { .v2_fd = -1, .entry_fd = slots[SUPERVISOR_ENTRY] } }
        };
        memcpy(birth.box.cgroup.tasks_fd, &slots[SUPERVISOR_TASKS], sizeof(birth.box.cgroup.tasks_fd));
        take_view(slots, &birth.fds);
        birth.fds.sync_fd = take_fd(&slots[SUPERVISOR_SYNC]);
        birth.fds.control_fd = take_fd(&slots[SUPERVISOR_CONTROL]);
        birth.fds.agent_fd = take_fd(&slots[SUPERVISOR_AGENT]);
        birth.fds.listener_fd = take_fd(&slots[SUPERVISOR_LISTENER]);
        birth.fds.template_fd = spec.from_template ? rootfs_template_copy() : -1; /* the stage says when that failed */
        int code = box_clone(&birth, false, err);
        if (spec.given_network)
                supervisor_network_leave();
        stage_fds_close(&birth.fds);
        for (size_t i = SUPERVISOR_DEVICES; i < SUPERVISOR_MOUNTS; i++)
                slots[i] = -1; /* closed with the stage's */
        if (code < 0 && birth.box.pidfd >= 0)
                (void) sys_pidfd_send_signal(birth.box.pidfd, SIGKILL);
        *ret_pidfd = birth.box.pidfd;
        return code;
}

static void stop_nursery(bool light) {
        if (nursery_pids[light] > 0)
                (void) kill(nursery_pids[light], SIGKILL);
}

static void become_nursery(const struct supervisor_request *request, const int slots[static SUPERVISOR_SLOTS],
                           int report_fd) __attribute__((noreturn));
static void become_nursery(const struct supervisor_request *request, const int slots[static SUPERVISOR_SLOTS],
                           int report_fd) {
        sigset_t none;
        sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        signals_reset();
        const struct box_spec spec = { .image = &request->image, .limits = request->limits };
        struct stage_fds fds = {
                .sync_fd = report_fd, .control_fd = -1, .agent_fd = -1, .listener_fd = -1, .template_fd = -1
        };
        take_view(slots, &fds);
        struct nursery_stage nursery = { .spec = &spec,
                                         .fds = &fds,
                                         .socket_fd = slots[SUPERVISOR_SOCKET],
                                         .answer_fd = slots[SUPERVISOR_ANSWERS],
                                         .library_fd = slots[SUPERVISOR_LIBRARY],
                                         .preload = request->preload,
                                         .light = request->light };
        nursery_stage_run(&nursery);
}

static int start_nursery(const struct supervisor_request *request, const int slots[static SUPERVISOR_SLOTS],
                         int *ret_pidfd, struct err *err) {
        int report[2];
        stop_nursery(request->light);
        if (pipe2(report, O_CLOEXEC) < 0)
                return err_sys(err, errno, "making a pipe");
        _cleanup_fd_ int report_read = report[0];
        _cleanup_fd_ int report_write = report[1];
        pid_t wanted = NURSERY_FIRST_PID + nursery_count++ % NURSERY_PIDS;
        struct clone_args args = { .flags = CLONE_NEWNS | CLONE_PIDFD,
                                   .exit_signal = SIGCHLD,
                                   .pidfd = (uint64_t) (uintptr_t) ret_pidfd,
                                   .set_tid = (uint64_t) (uintptr_t) &wanted,
                                   .set_tid_size = 1 };
        pid_t pid = sys_clone3(&args);
        if (pid < 0 && (errno == EEXIST || errno == EINVAL || errno == EPERM)) {
                args.set_tid = args.set_tid_size = 0;
                pid = sys_clone3(&args);
        }
        if (pid == 0)
                become_nursery(request, slots, report_write);
        if (pid < 0)
                return err_sys(err, errno, "cloning the nursery");
        nursery_pids[request->light] = pid;
        fd_close(&report_write);
        struct err reported;
        if (fd_read_exactly(report_read, &reported, sizeof(reported)) < 0)
                return 0; /* closed by the exec of Python */
        *err = reported;
        return -1;
}

/* The nursery reports which of our children is the kernel; the maker checks that it is in the right box. */
static int supervisor_process_watch(pid_t pid, int slots[static SUPERVISOR_SLOTS], int *ret_pidfd, struct err *err) {
        siginfo_t info;
        _cleanup_fd_ int pidfd = pid > 0 ? (int) syscall(SYS_pidfd_open, pid, 0) : -1;
        if (n_watched == WATCHED_MAX)
                return err_set(err, ERR_LIMIT, "the supervisor has %d kernels already", WATCHED_MAX);
        /* A child that was reaped is gone; another process may have its number now. */
        const idtype_t by_pidfd = (idtype_t) 3; /* P_PIDFD */
        if (pidfd < 0 || waitid(by_pidfd, (id_t) pidfd, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
                /* Not ERR_GONE: that would be the supervisor itself. */
                return err_set(err, ERR_NOT_FOUND, "the kernel died while it was made");
        for (size_t i = 0; i < n_watched; i++)
                if (watched[i].pid == pid)
                        return err_set(err, ERR_PROTOCOL, "the nursery answered with another kernel");
        watched[n_watched].pid = pid;
        watched[n_watched++].status_fd = take_fd(&slots[SUPERVISOR_STATUS]);
        *ret_pidfd = take_fd(&pidfd);
        return 0;
}

/* False when the maker is gone, or must not wait for an answer. */
static bool handle_request(int fd) {
        static struct supervisor_request request; /* large: not on the stack */
        int slots[SUPERVISOR_SLOTS];
        ssize_t size = fd_passing_receive(fd, &request, sizeof(request), slots, SUPERVISOR_SLOTS, 0);
        if (size < (ssize_t) offsetof(struct supervisor_request, image) ||
            (size_t) size != supervisor_request_size(&request))
                return false;
        int pidfd = -1, code = -1;
        struct err err = { 0 };
        switch (request.kind) {
        case SUPERVISOR_CLONE_BOX:
                code = clone_box(&request, slots, &pidfd, &err);
                break;
        case SUPERVISOR_START_NURSERY:
                code = start_nursery(&request, slots, &pidfd, &err);
                break;
        case SUPERVISOR_WATCH:
                code = supervisor_process_watch(request.pid, slots, &pidfd, &err);
                break;
        }
        for (size_t i = 0; i < SUPERVISOR_SLOTS; i++)
                fd_close(&slots[i]);
        bool sent = supervisor_process_answer(fd, code, &err, pidfd);
        fd_close(&pidfd);
        return sent;
}

/* ---- children ---- */

/* True while there are any. */
static bool supervisor_process_reap(void) {
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                for (size_t i = 0; i < ELEMENTS(nursery_pids); i++)
                        if (pid == nursery_pids[i])
                                nursery_pids[i] = 0;
                for (size_t i = 0; i < n_watched; i++) {
                        if (watched[i].pid != pid)
                                continue;
                        /* Twice: for the daemon, and for the caller whose program it was. */
                        (void) !write(watched[i].status_fd, (int[]) { status, status }, 2 * sizeof(status));
                        fd_close(&watched[i].status_fd);
                        watched[i] = watched[--n_watched];
                        break;
                }
        }
        return pid == 0;
}

static int supervisor_process_settle(void) {
        (void) prctl(PR_SET_NAME, "glovebox-superv"); /* fifteen characters at most */
        /* The id maps of boxes are written through /proc, where only a dumpable process is its own. A nursery cannot
         * trace us all the same: it lacks our capabilities. */
        if (fcntl(SUPERVISOR_FD, F_SETFD, FD_CLOEXEC) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
                return -errno;
        int code = privilege_pass_on_no_more();
        return code < 0 ? code : supervisor_process_make_root();
}

/* Begun by supervisor_become: descriptors 0 to 3 and nothing else, every signal blocked. */
int main(void) {
        struct err err = { 0 };
        sigset_t children;
        int fd = SUPERVISOR_FD, code = supervisor_process_settle();
        sigemptyset(&children);
        sigaddset(&children, SIGCHLD);
        if (code < 0) {
                (void) err_sys(&err, -code, "preparing the supervisor's root");
                (void) supervisor_process_answer(fd, -1, &err, -1);
                _exit(EXIT_FAILURE);
        }
        (void) supervisor_network_open();
        int child_fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
        if (child_fd < 0)
                _exit(EXIT_FAILURE);
        if (!supervisor_process_answer(fd, 0, &err, -1))
                _exit(EXIT_FAILURE);
        for (bool asked = true;;) {
                struct pollfd polled[] = { { .fd = child_fd, .events = POLLIN },
                                           { .fd = asked ? fd : -1, .events = POLLIN } };
                int n_ready = poll(polled, 2, asked ? supervisor_network_delay_ms() : -1);
                if (n_ready == 0)
                        supervisor_network_make_one();
                if (n_ready <= 0)
                        continue;
                struct signalfd_siginfo ignored[8];
                (void) !read(child_fd, ignored, sizeof(ignored));
                bool has_children = supervisor_process_reap();
                if (polled[1].revents && !handle_request(fd)) {
                        asked = false;
                        fd_close(&fd); /* so that the other end does not wait */
                        stop_nursery(false);
                        stop_nursery(true);
                        has_children |= nursery_pids[false] > 0 || nursery_pids[true] > 0;
                        has_children |= supervisor_process_reap();
                }
                if (!asked && !has_children)
                        _exit(EXIT_SUCCESS);
        }
}
