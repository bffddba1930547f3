/* The maker's side of a ward. */
#include "session/ward.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/passing.h"
#include "box/identity.h"
#include "box/syscalls.h"
#include "session/ward_image.h"
#include "session/ward_message.h"

#define NAMESPACES \
        (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

enum {
        ANSWER_WAIT_S = 20,
        LEASES_IN_WARD = 0x10000, /* the second id of the range, as N sees it */
};

/* The ward's own id is 1000 in N, as the user of a box is in a box: 0 is not mapped, so a change of ids takes no
 * capability away. Ids of boxes lie above. */
static uid_t id_in_ward(uid_t host_id) {
        return identity_has_range() ? host_id - (IDENTITY_FIRST_UID + 1) + LEASES_IN_WARD : BOX_UID;
}

static int write_map(pid_t pid, const char *file, unsigned own) {
        char path[64], text[128];
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        if (identity_has_range())
                (void) snprintf(text, sizeof(text), "%d %u 1\n%d %u %d\n", BOX_UID, IDENTITY_FIRST_UID, LEASES_IN_WARD,
                                IDENTITY_FIRST_UID + 1, IDENTITY_COUNT - 1);
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
        struct ward_answer answer;
        int pidfd = -1;
        ssize_t size = passing_receive(fd, &answer, sizeof(answer), &pidfd, 1, 0);
        if (size != sizeof(answer)) {
                fd_close(&pidfd);
                return err_set(err, ERR_GONE, "the ward does not answer");
        }
        if (ret_pidfd)
                *ret_pidfd = pidfd;
        else
                fd_close(&pidfd);
        if (answer.code < 0)
                *err = answer.err;
        return answer.code;
}

int ward_start(struct ward *ward, struct err *err) {
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
        _cleanup_fd_ int program = fd_sealed_copy("ward", ward_image, ward_image_size());
        if (program < 0)
                return err_sys(err, -program, "preparing the ward's program");
        struct clone_args args = { .flags = NAMESPACES, .exit_signal = SIGCHLD };
        pid_t pid = sys_clone3(&args);
        if (pid == 0) {
                fd_close(&start_write);
                ward_become(start_read, theirs, program, ward->owner, drop_groups);
        }
        if (pid < 0)
                return err_sys(err, errno, "making the namespaces of a ward");
        fd_close(&theirs);
        const struct timeval patience = { .tv_sec = ANSWER_WAIT_S };
        (void) setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        int code = write_map(pid, "gid_map", getegid());
        if (code == 0)
                code = write_map(pid, "uid_map", geteuid());
        if (code < 0)
                (void) err_sys(err, -code, "mapping the ids of a ward");
        else if (fd_write_all(start_write, "i", 1) < 0 || receive_answer(ours, NULL, err) < 0)
                code = -1;
        if (code < 0) {
                (void) kill(pid, SIGKILL);
                (void) waitpid(pid, NULL, 0);
                return -1;
        }
        ward->pid = pid;
        ward->fd = take_fd(&ours);
        ward->mould = 0;
        return 0;
}

void ward_leave(struct ward *ward) {
        fd_close(&ward->fd);
        ward->mould = 0;
        ward->pid = 0; /* reaped with everything else */
}

/* ---- requests ---- */

uint64_t ward_mould_of(uint64_t fingerprint, const struct box_spec *spec) {
        /* Not 0, and another one for each number of processors. */
        return spec->n_mounts || spec->code_name ? 0 : (fingerprint * 31 + limits_processors(&spec->limits)) | 1;
}

static int fill_request(const struct box_spec *spec, const struct stage_fds *fds, struct ward_request *request,
                        int slots[static WARD_SLOTS], struct err *err) {
        for (size_t i = 0; i < WARD_SLOTS; i++)
                slots[i] = -1;
        request->limits = spec->limits;
        request->from_mould = spec->from_mould;
        if (spec->from_mould)
                return 0;
        if (spec->n_mounts > WARD_MOUNTS_MAX)
                return err_set(err, ERR_LIMIT, "more than %d mounts", WARD_MOUNTS_MAX);
        request->has_image = true;
        request->image = *spec->image;
        request->n_mounts = spec->n_mounts;
        for (size_t i = 0; i < spec->n_mounts; i++) {
                const struct box_mount *mount = &spec->mounts[i];
                if (strlen(mount->destination) >= WARD_DESTINATION_MAX)
                        return err_set(err, ERR_LIMIT, "a mount's destination is too long: %.80s…",
                                       mount->destination);
                request->mounts[i].is_directory = mount->is_directory;
                request->mounts[i].writable = mount->writable;
                (void) strcpy(request->mounts[i].destination, mount->destination);
                slots[WARD_MOUNTS + i] = mount->tree_fd;
        }
        memcpy(&slots[WARD_TREES], fds->tree_fds, sizeof(fds->tree_fds));
        memcpy(&slots[WARD_DEVICES], fds->device_fds, sizeof(fds->device_fds));
        return 0;
}

/* A ward that does not answer is left alone with its boxes: the next nursery gets another. */
static int tell(struct ward *ward, const struct ward_request *request, const int slots[static WARD_SLOTS],
                struct err *err) {
        int code = passing_send(ward->fd, request, ward_request_size(request), slots, WARD_SLOTS, 0);
        if (code < 0) {
                (void) err_set(err, ERR_GONE, "the ward is gone: %s", strerror(-code));
                ward_leave(ward);
        }
        return code;
}

static int hear(struct ward *ward, int *ret_pidfd, struct err *err) {
        int code = receive_answer(ward->fd, ret_pidfd, err);
        if (code < 0 && err->code == ERR_GONE)
                ward_leave(ward);
        return code;
}

static int ask(struct ward *ward, const struct ward_request *request, const int slots[static WARD_SLOTS],
               int *ret_pidfd, struct err *err) {
        return tell(ward, request, slots, err) < 0 ? -1 : hear(ward, ret_pidfd, err);
}

int ward_clone_box(struct ward *ward, struct box_birth *birth, uint64_t mould, struct err *err) {
        struct box *box = &birth->box;
        _cleanup_free_ struct ward_request *request = calloc(1, sizeof(*request));
        int slots[WARD_SLOTS];
        if (!request)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        /* Nobody in N may clone into a group of the host: the child moves itself, through a file that we opened. */
        if (cgroup_open_v2_entry(&box->cgroup, err) < 0 ||
            fill_request(birth->spec, &birth->fds, request, slots, err) < 0)
                return -1;
        request->kind = WARD_CLONE_BOX;
        request->makes_mould = mould && !birth->spec->from_mould;
        request->uid = id_in_ward(birth->spec->host_uid);
        request->gid = id_in_ward(birth->spec->host_gid);
        request->has_memory_cgroup = birth->has_memory_cgroup;
        request->has_pids_cgroup = birth->has_pids_cgroup;
        slots[WARD_SYNC] = birth->fds.sync_fd;
        slots[WARD_CONTROL] = birth->fds.control_fd;
        slots[WARD_AGENT] = birth->fds.agent_fd;
        slots[WARD_LISTENER] = birth->fds.listener_fd;
        slots[WARD_WORKSPACE] = birth->spec->workspace_fd;
        slots[WARD_ENTRY] = box->cgroup.entry_fd;
        memcpy(&slots[WARD_TASKS], box->cgroup.tasks_fd, sizeof(box->cgroup.tasks_fd));
        int code = ask(ward, request, slots, &box->pidfd, err);
        if (request->makes_mould)
                ward->mould = code == 0 ? mould : 0;
        if (code < 0)
                return -1;
        stage_fds_close(&birth->fds);
        box->pid = ward_pid_of(box->pidfd);
        return box->pid > 0 ? 0 : err_set(err, ERR_GONE, "the box died while it was made");
}

int ward_start_nursery(struct ward *ward, const struct box_spec *spec, bool light, const char *preload, int library_fd,
                       int *ret_socket_fd, int *ret_answer_fd, int *ret_pidfd, struct err *err) {
        _cleanup_free_ struct ward_request *request = calloc(1, sizeof(*request));
        _cleanup_(stage_fds_close) struct stage_fds fds;
        int slots[WARD_SLOTS], ends[2] = { -1, -1 }, answers[2] = { -1, -1 };
        if (stage_fds_open_view(spec, &fds, err) < 0)
                return -1;
        if (!request)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        if (fill_request(spec, &fds, request, slots, err) < 0)
                return -1;
        request->kind = WARD_START_NURSERY;
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
        /* One way: whatever the nursery would send here, also descriptors, is refused at its end. */
        if (shutdown(ours, SHUT_RD) < 0)
                return err_sys(err, errno, "closing one way of a socket");
        slots[WARD_SOCKET] = theirs;
        slots[WARD_ANSWERS] = answers_write;
        slots[WARD_LIBRARY] = library_fd;
        if (ask(ward, request, slots, ret_pidfd, err) < 0)
                return -1;
        *ret_socket_fd = take_fd(&ours);
        *ret_answer_fd = take_fd(&answers_read);
        return 0;
}

int ward_ask_to_watch(struct ward *ward, pid_t pid, int status_fd, struct err *err) {
        _cleanup_free_ struct ward_request *request = calloc(1, sizeof(*request));
        int slots[WARD_SLOTS];
        if (!request)
                return err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        for (size_t i = 0; i < WARD_SLOTS; i++)
                slots[i] = -1;
        request->kind = WARD_WATCH;
        request->pid = pid;
        slots[WARD_STATUS] = status_fd;
        return tell(ward, request, slots, err) < 0 ? -1 : 0;
}

int ward_is_watching(struct ward *ward, int *ret_pidfd, struct err *err) {
        return hear(ward, ret_pidfd, err);
}
