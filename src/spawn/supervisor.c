/* The maker's side of a supervisor. */
#include "spawn/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fd_passing.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/host/identity.h"
#include "box/seal/box_clone.h"
#include "spawn/supervisor_image.h"
#include "spawn/supervisor_message.h"

#define NAMESPACES                                                                                                     \
        (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

enum {
        ANSWER_WAIT_S = 20,
        LEASES_IN_NAMESPACE = 0x10000, /* the second id of the range, as N sees it */
};

/* The supervisor's own id is 1000 in N, as the user of a box is in a box: 0 is not mapped, so a change of ids takes no
 * capability away. Ids of boxes lie above. */
static uid_t id_in_namespace(uid_t host_id) {
        return identity_has_range() ? host_id - (IDENTITY_FIRST_UID + 1) + LEASES_IN_NAMESPACE : BOX_UID;
}

static int supervisor_write_map(pid_t pid, const char *file, unsigned own) {
        char path[64], text[128];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        if (identity_has_range())
                (void) snprintf(text, sizeof(text), "%d %u 1\n%d %u %d\n", BOX_UID, IDENTITY_FIRST_UID,
                                LEASES_IN_NAMESPACE, IDENTITY_FIRST_UID + 1, IDENTITY_COUNT - 1);
        else
                (void) snprintf(text, sizeof(text), "%d %u 1\n", BOX_UID, own);
        _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

static bool may_set_groups(void) {
        char text[8] = "";
        _cleanup_fd_ int fd = open("/proc/self/setgroups", O_RDONLY | O_CLOEXEC);
        return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strncmp(text, "allow", 5) == 0;
}

static int receive_answer(int fd, int *ret_pidfd, struct err *err) {
        struct supervisor_answer answer;
        int pidfd = -1;
        ssize_t size = fd_passing_receive(fd, &answer, sizeof(answer), &pidfd, 1, 0);
        if (size != sizeof(answer)) {
                fd_close(&pidfd);
                return err_set(err, ERR_GONE, "the supervisor does not answer");
        }
        if (ret_pidfd)
                *ret_pidfd = pidfd;
        else
                fd_close(&pidfd);
        if (answer.code < 0)
                *err = answer.err;
        return answer.code;
}

int supervisor_start(struct supervisor *supervisor, struct err *err) {
        int ends[2], start[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        _cleanup_fd_ int ours = ends[0];
        _cleanup_fd_ int theirs = ends[1];
        if (pipe2(start, O_CLOEXEC) < 0)
                return err_sys(err, errno, "making a pipe");
        _cleanup_fd_ int start_read = start[0];
        _cleanup_fd_ int start_write = start[1];
        bool drop_groups = may_set_groups();
        _cleanup_fd_ int program = fd_sealed_copy("supervisor", supervisor_image, supervisor_image_size());
        if (program < 0)
                return err_sys(err, -program, "preparing the supervisor's program");
        struct clone_args args = { .flags = NAMESPACES, .exit_signal = SIGCHLD };
        pid_t pid = sys_clone3(&args);
        if (pid == 0) {
                fd_close(&start_write);
                supervisor_become(start_read, theirs, program, supervisor->owner, drop_groups);
        }
        if (pid < 0)
                return err_sys(err, errno, "making the namespaces of a supervisor");
        fd_close(&theirs);
        const struct timeval patience = { .tv_sec = ANSWER_WAIT_S };
        (void) setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        int code = supervisor_write_map(pid, "gid_map", getegid());
        if (code == 0)
                code = supervisor_write_map(pid, "uid_map", geteuid());
        if (code < 0)
                (void) err_sys(err, -code, "mapping the ids of a supervisor");
        else if (fd_write_all(start_write, "i", 1) < 0 || receive_answer(ours, NULL, err) < 0)
                code = -1;
        if (code < 0) {
                (void) kill(pid, SIGKILL);
                (void) waitpid(pid, NULL, 0);
                return -1;
        }
        supervisor->pid = pid;
        supervisor->fd = take_fd(&ours);
        supervisor->template = 0;
        return 0;
}

/* Closes the connection: the supervisor exits after its last box. Safe on { 0, -1 }. */
static void supervisor_leave(struct supervisor *supervisor) {
        fd_close(&supervisor->fd);
        supervisor->template = 0;
        supervisor->pid = 0; /* reaped with everything else */
}

/* ---- requests ---- */

uint64_t supervisor_template_of(uint64_t fingerprint, const struct box_spec *spec) {
        /* Not 0, and different for each number of processors. */
        return spec->n_mounts || spec->code_name ? 0
                                                 : (fingerprint * 31 + limits_visible_processors(&spec->limits)) | 1;
}

static int fill_request(const struct box_spec *spec, const struct stage_fds *fds, struct supervisor_request *request,
                        int slots[static SUPERVISOR_SLOTS], struct err *err) {
        for (size_t i = 0; i < SUPERVISOR_SLOTS; i++)
                slots[i] = -1;
        request->limits = spec->limits;
        request->from_template = spec->from_template;
        if (spec->from_template)
                return 0;
        if (spec->n_mounts > SUPERVISOR_MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "more than %d mounts", SUPERVISOR_MOUNTS_MAX);
        request->has_image = true;
        request->image = *spec->image;
        request->n_mounts = spec->n_mounts;
        for (size_t i = 0; i < spec->n_mounts; i++) {
                const struct box_mount *mount = &spec->mounts[i];
                if (strlen(mount->destination) >= SUPERVISOR_DESTINATION_MAX)
                        return err_set(err, ERR_LIMIT, "a mount's destination is too long: %.80s…", mount->destination);
                request->mounts[i].is_directory = mount->is_directory;
                request->mounts[i].writable = mount->writable;
                (void) strcpy(request->mounts[i].destination, mount->destination);
                slots[SUPERVISOR_MOUNTS + i] = mount->tree_fd;
        }
        memcpy(&slots[SUPERVISOR_TREES], fds->tree_fds, sizeof(fds->tree_fds));
        memcpy(&slots[SUPERVISOR_DEVICES], fds->device_fds, sizeof(fds->device_fds));
        return 0;
}

/* A supervisor that does not answer is left alone with its boxes: the next nursery gets another. */
static int supervisor_send(struct supervisor *supervisor, const struct supervisor_request *request,
                           const int slots[static SUPERVISOR_SLOTS], struct err *err) {
        int code =
                fd_passing_send(supervisor->fd, request, supervisor_request_size(request), slots, SUPERVISOR_SLOTS, 0);
        if (code < 0) {
                (void) err_set(err, ERR_GONE, "the supervisor is gone: %s", strerror(-code));
                supervisor_leave(supervisor);
        }
        return code;
}

static int supervisor_read_answer(struct supervisor *supervisor, int *ret_pidfd, struct err *err) {
        int code = receive_answer(supervisor->fd, ret_pidfd, err);
        if (code < 0 && err->code == ERR_GONE)
                supervisor_leave(supervisor);
        return code;
}

static int supervisor_ask(struct supervisor *supervisor, const struct supervisor_request *request,
                          const int slots[static SUPERVISOR_SLOTS], int *ret_pidfd, struct err *err) {
        return supervisor_send(supervisor, request, slots, err) < 0
                       ? -1
                       : supervisor_read_answer(supervisor, ret_pidfd, err);
}

int supervisor_clone_box(struct supervisor *supervisor, struct box_birth *birth, uint64_t template, struct err *err) {
        struct box *box = &birth->box;
        _cleanup_free_ struct supervisor_request *request = calloc(1, sizeof(*request));
        int slots[SUPERVISOR_SLOTS];
        if (!request)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        /* No process in N may clone into a group of the host: the child moves itself, through a file that was opened
         * outside. */
        if (cgroup_open_v2_entry(&box->cgroup, err) < 0 ||
            fill_request(birth->spec, &birth->fds, request, slots, err) < 0)
                return -1;
        request->kind = SUPERVISOR_CLONE_BOX;
        request->makes_template = template && !birth->spec->from_template;
        request->uid = id_in_namespace(birth->spec->host_uid);
        request->gid = id_in_namespace(birth->spec->host_gid);
        request->has_memory_cgroup = birth->has_memory_cgroup;
        request->has_pids_cgroup = birth->has_pids_cgroup;
        slots[SUPERVISOR_SYNC] = birth->fds.sync_fd;
        slots[SUPERVISOR_CONTROL] = birth->fds.control_fd;
        slots[SUPERVISOR_AGENT] = birth->fds.agent_fd;
        slots[SUPERVISOR_LISTENER] = birth->fds.listener_fd;
        slots[SUPERVISOR_WORKSPACE] = birth->spec->workspace_fd;
        slots[SUPERVISOR_ENTRY] = box->cgroup.entry_fd;
        memcpy(&slots[SUPERVISOR_TASKS], box->cgroup.tasks_fd, sizeof(box->cgroup.tasks_fd));
        int code = supervisor_ask(supervisor, request, slots, &box->pidfd, err);
        if (request->makes_template)
                supervisor->template = code == 0 ? template : 0;
        if (code < 0)
                return -1;
        stage_fds_close(&birth->fds);
        box->pid = supervisor_pid_of(box->pidfd);
        return box->pid > 0 ? 0 : err_set(err, ERR_GONE, "the box died while it was made");
}

int supervisor_start_nursery(struct supervisor *supervisor, const struct box_spec *spec, bool light,
                             const char *preload, int library_fd, int *ret_socket_fd, int *ret_answer_fd,
                             int *ret_pidfd, struct err *err) {
        _cleanup_free_ struct supervisor_request *request = calloc(1, sizeof(*request));
        _cleanup_(stage_fds_close) struct stage_fds fds;
        int slots[SUPERVISOR_SLOTS], ends[2] = { -1, -1 }, answers[2] = { -1, -1 };
        if (stage_fds_open_view(spec, &fds, err) < 0)
                return -1;
        if (!request)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (fill_request(spec, &fds, request, slots, err) < 0)
                return -1;
        request->kind = SUPERVISOR_START_NURSERY;
        request->light = light;
        (void) snprintf(request->preload, sizeof(request->preload), "%s", preload);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return err_sys(err, errno, "making a socket pair");
        _cleanup_fd_ int ours = ends[0];
        _cleanup_fd_ int theirs = ends[1];
        if (pipe2(answers, O_CLOEXEC) < 0)
                return err_sys(err, errno, "making a pipe");
        _cleanup_fd_ int answers_read = answers[0];
        _cleanup_fd_ int answers_write = answers[1];
        /* One way only: anything that the nursery sends, descriptors too, fails at its end. */
        if (shutdown(ours, SHUT_RD) < 0)
                return err_sys(err, errno, "closing one way of a socket");
        slots[SUPERVISOR_SOCKET] = theirs;
        slots[SUPERVISOR_ANSWERS] = answers_write;
        slots[SUPERVISOR_LIBRARY] = library_fd;
        if (supervisor_ask(supervisor, request, slots, ret_pidfd, err) < 0)
                return -1;
        *ret_socket_fd = take_fd(&ours);
        *ret_answer_fd = take_fd(&answers_read);
        return 0;
}

int supervisor_watch(struct supervisor *supervisor, pid_t pid, int status_fd, int *ret_pidfd, struct err *err) {
        _cleanup_free_ struct supervisor_request *request = calloc(1, sizeof(*request));
        int slots[SUPERVISOR_SLOTS];
        if (!request)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        for (size_t i = 0; i < SUPERVISOR_SLOTS; i++)
                slots[i] = -1;
        request->kind = SUPERVISOR_WATCH;
        request->pid = pid;
        slots[SUPERVISOR_STATUS] = status_fd;
        return supervisor_ask(supervisor, request, slots, ret_pidfd, err);
}
